"""A price list and an export: what changes, what stays behind with its own date, and what is refused."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from cost_examples import prices
from neuroscale.catalog import Catalog
from neuroscale.catalog.price_export import Export, WantedPrices
from neuroscale.catalog.price_list import PriceList
from neuroscale.catalog.price_update import Update, read_export, updated
from neuroscale.core.errors import InputError
from neuroscale.core.validation import parse
from neuroscale.planning.price import pod_price
from price_exports import aws, google, google_skus, sku

FACTOR = Decimal("1.5")
LATER = "2026-06-28T09:00:00.000Z"


def export(value: Any, region: str = "us-central1") -> Export:
    wanted = WantedPrices(region if "skus" in value else None, "on-demand")
    return read_export(json.dumps(value), "export.json", wanted, prices().catalog.accelerators, date(2026, 7, 1))


def listed(update: Update) -> PriceList:
    return parse(PriceList, update.text, update.path)


def again(update: Update, value: Any, factor: Decimal = FACTOR) -> Update:
    return updated(update.name, update.text, listed(update), export(value), factor)


def priced(price_list: PriceList, accelerator: str, count: int, cpu: int, memory: int) -> str | None:
    now = prices().catalog
    catalog = Catalog(now.models, now.accelerators, {price_list.name: price_list}, now.runtimes, now.teams)
    found = pod_price(catalog, (price_list.name,), accelerator, count, cpu, memory)
    return None if found is None else format(found.hourly.normalize(), "f")


def test_a_new_list_has_the_prices_with_source_date_region_and_tier() -> None:
    update = updated("google-cloud-us-central1", None, None, export(google()), FACTOR)
    made = listed(update)
    assert update.path == "platform/catalog/prices/google-cloud-us-central1.yaml"
    assert (made.date, made.region, made.tier) == (date(2026, 6, 20), "us-central1", "on-demand list price")
    assert made.source.startswith("Google's Cloud Billing Catalog, service Compute Engine")
    assert [(change.what, change.before) for change in update.changes] == [
        ("1 x nvidia-h100-80gb", None),
        ("1 x nvidia-l4", None),
    ]
    # 0.56004 for the L4, 4 x 0.024988 for vCPUs, 16 x 0.002927 for memory.
    assert priced(made, "nvidia-l4", 1, 4, 16) == "0.706824"
    assert priced(made, "nvidia-l4", 2, 4, 16) == "1.266864"


def test_a_pod_costs_the_cheapest_instance_that_holds_it() -> None:
    made = listed(updated("aws-eu-west-1", None, None, export(aws()), FACTOR))
    # A node keeps some of its 4 vCPUs and 16 GiB for itself: a pod that asks for all of them needs a larger one.
    assert priced(made, "nvidia-l4", 1, 3, 12) == "0.9"
    assert priced(made, "nvidia-l4", 1, 4, 12) == "1.1"
    assert priced(made, "nvidia-l4", 1, 3, 16) == "1.1"
    assert priced(made, "nvidia-l4", 1, 9, 16) is None
    assert priced(made, "nvidia-l4", 4, 16, 64) == "5.2"
    assert priced(made, "nvidia-l4", 2, 8, 32) is None
    assert priced(made, "nvidia-a100-80gb", 8, 90, 1000) == "30.4"


@pytest.mark.parametrize("value", [google(), aws()], ids=["google", "aws"])
def test_a_second_run_changes_nothing(value: Any) -> None:
    first = updated("a-list", None, None, export(value), FACTOR)
    second = again(first, value)
    assert (second.text, second.changes) == (first.text, ())


def test_a_changed_price_is_named_and_a_change_beyond_the_factor_stands_out() -> None:
    first = updated("a-list", None, None, export(google()), FACTOR)
    skus = google_skus()
    skus[0] = sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 600_000_000)
    skus[4] = sku("BBBB-0001", "Nvidia H100 80GB GPU running in Iowa", 0, units="4")
    skus[1] = sku("AAAA-0002", "G2 Instance Core running in Iowa", 60_000_000, group="CPU")
    second = again(first, google(*skus))
    assert [(one.what, str(one.before), str(one.after), one.large) for one in second.changes] == [
        ("1 x nvidia-h100-80gb", "9.796", "4.00", True),
        ("1 x nvidia-l4", "0.56004", "0.60", False),
        ("a vCPU beside 1 x nvidia-l4", "0.024988", "0.06", True),
    ]
    assert len(again(first, google(*skus), Decimal(3)).large) == 0


def test_what_the_export_lacks_stays_with_its_own_date() -> None:
    first = updated("a-list", None, None, export(google()), FACTOR)
    later = [one | {"pricingInfo": [one["pricingInfo"][0] | {"effectiveTime": LATER}]} for one in google_skus()[:3]]
    second = again(first, google(*later))
    assert [(one.what, one.after) for one in second.changes] == [("1 x nvidia-h100-80gb", None)]
    assert "stays at 9.796 USD an hour" in str(second.changes[0])
    made = listed(second)
    days = {one.accelerator: one.date or made.date for one in made.prices}
    assert days == {"nvidia-h100-80gb": date(2026, 6, 20), "nvidia-l4": date(2026, 6, 28)}
    assert made.oldest == date(2026, 6, 20)
    whole = [one | {"pricingInfo": [one["pricingInfo"][0] | {"effectiveTime": LATER}]} for one in google_skus()]
    assert listed(again(second, google(*whole))).oldest == date(2026, 6, 28)


def test_a_list_with_its_own_rates_keeps_their_date_and_its_comments() -> None:
    text = (
        '# Ours.\nname: a-list\nsource: "a page of ours"\ndate: "2026-06-01"\nregion: us-central1\n'
        'tier: "on-demand list price"\nvcpu_hour: "0.0864"\nmemory_gib_hour: "0.009"\nprices:\n'
        '  - {accelerator: nvidia-l4, count: 1, unit: accelerator-hour, usd: "0.72", includes: []}\n'
        '  - {accelerator: nvidia-h100-80gb, count: 1, unit: instance-hour, usd: "10.98", includes: [cpu, memory]}\n'
    )
    there = parse(PriceList, text, "a-list.yaml")
    update = updated("a-list", text, there, export(google()), FACTOR)
    made = listed(update)
    assert update.text.startswith("# Ours.\nname: a-list\n")
    assert (made.date, made.vcpu_hour, made.source) == (date(2026, 6, 1), Decimal("0.0864"), "a page of ours")
    assert {one.date for one in made.prices} == {date(2026, 6, 20)}
    # The price was for a whole machine, and is for the GPU alone now: the two cannot be compared.
    assert [str(one) for one in update.large] == [
        "1 x nvidia-h100-80gb: 10.98 to 9.796 USD an hour, now with nothing else included"
    ]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("region", "europe-west1", "is 'europe-west1', and the file's prices are of 'us-central1'"),
        ("tier", "spot list price", "is 'spot list price'"),
        ("date", "2026-06-21", "but the file's prices are of 2026-06-20"),
    ],
)
def test_prices_of_another_region_tier_or_an_older_day_are_refused(field: str, value: str, words: str) -> None:
    first = updated("a-list", None, None, export(google()), FACTOR)
    now = {"region": "us-central1", "tier": "on-demand list price", "date": "2026-06-20"}[field]
    assert first.text.count(now)
    text = "".join(
        line.replace(now, value) if line.startswith(f"{field}:") else line
        for line in first.text.splitlines(keepends=True)
    )
    with pytest.raises(InputError) as error:
        updated("a-list", text, parse(PriceList, text, "x"), export(google()), FACTOR)
    assert words in str(error.value)
    assert "platform/catalog/prices/a-list.yaml" in str(error.value)
