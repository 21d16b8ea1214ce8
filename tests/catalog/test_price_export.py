"""What an exported price list says of the catalog's accelerators: units, tiers, what is left alone, and bad files."""

from __future__ import annotations

import copy
import json
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_examples import prices
from examples import examples
from neuroscale.catalog.price_export import Export, WantedPrices
from neuroscale.catalog.price_list import PriceList
from neuroscale.catalog.price_update import read_export, updated
from neuroscale.core.errors import InputError
from neuroscale.core.validation import parse
from price_exports import aws, google, google_skus, offer, product, sku

TODAY = date(2026, 7, 1)
IOWA = WantedPrices("us-central1", "on-demand")
IRELAND = WantedPrices(None, "on-demand")


def read(value: Any, wanted: WantedPrices = IRELAND, today: date = TODAY) -> Export:
    text = value if isinstance(value, str) else json.dumps(value)
    return read_export(text, "export.json", wanted, prices().catalog.accelerators, today)


def refused(value: Any, wanted: WantedPrices = IRELAND) -> str:
    with pytest.raises(InputError) as error:
        read(value, wanted)
    assert "export.json" in str(error.value)
    return str(error.value)


def left(export: Export) -> dict[str, str]:
    return {one.product: one.reason for one in export.unread}


def test_google_s_skus_become_prices_of_gpus_with_the_rates_of_their_own_machines() -> None:
    export = read(google(), IOWA)
    assert (export.provider, export.region, export.date) == ("google-cloud", "us-central1", date(2026, 6, 20))
    h100, l4 = export.prices
    assert (l4.accelerator, l4.count, l4.unit, l4.includes) == ("nvidia-l4", 1, "accelerator-hour", ())
    assert [l4.usd, l4.vcpu_hour, l4.memory_gib_hour] == [Decimal("0.56004"), Decimal("0.024988"), Decimal("0.002927")]
    assert [h100.usd, h100.vcpu_hour, h100.memory_gib_hour] == list(map(Decimal, ("9.796", "0.029", "0.0025")))
    assert l4.source == "Compute Engine G2, SKUs: GPU AAAA-0001, vCPU AAAA-0002, memory AAAA-0003"
    assert left(export) == {"Nvidia Tesla K80 GPU running in Iowa": "no accelerator is known by this description"}


def test_a_gpu_that_google_sells_only_in_machines_of_eight_has_no_price_for_one() -> None:
    whole = [
        sku("HHHH-0001", "Nvidia H200 141GB GPU running in Iowa", 0, units="8"),
        sku("HHHH-0002", "A3Ultra Instance Core running in Iowa", 30_000_000, group="CPU"),
        sku("HHHH-0003", "A3Ultra Instance Ram running in Iowa", 3_000_000, group="RAM", unit="GiBy.h"),
    ]
    export = read(google(*google_skus(), *whole), IOWA)
    assert "nvidia-h200-141gb" not in {one.accelerator for one in export.prices}
    assert "only in machines of eight" in left(export)["Nvidia H200 141GB GPU running in Iowa"]
    assert "without local SSDs" in export.source


def test_google_s_rates_of_a2_machines_are_prices_though_opencost_assumes_the_same() -> None:
    a2 = [
        sku("A2-1", "Nvidia Tesla A100 GPU running in Americas", 933_908_000, units="2"),
        sku("A2-2", "A2 Instance Core running in Americas", 31_611_000, group="CPU"),
        sku("A2-3", "A2 Instance Ram running in Americas", 4_237_000, group="RAM", unit="GiBy.h"),
    ]
    export = read(google(*a2), IOWA)
    listed = parse(PriceList, updated("a-list", None, None, export, Decimal("1.5")).text, "a-list.yaml")
    (a100,) = listed.prices
    # What https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator has for an a2-highgpu-1g.
    assert listed.hourly(a100, 1, 12, 85) == Decimal("3.673385")


@pytest.mark.parametrize(
    ("unit", "nanos", "hourly"),
    [("h", 720_000_000, "0.72"), ("s", 200_000, "0.72"), ("min", 12_000_000, "0.72"), ("d", 24_000_000, "0.001")],
)
def test_each_unit_of_time_is_brought_to_an_hour(unit: str, nanos: int, hourly: str) -> None:
    skus = google_skus()
    skus[0] = sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", nanos, unit=unit)
    (l4,) = (one for one in read(google(*skus), IOWA).prices if one.accelerator == "nvidia-l4")
    assert l4.usd == Decimal(hourly)


@pytest.mark.parametrize(
    ("index", "new", "words"),
    [
        (2, sku("AAAA-0003", "G2 Instance Ram running in Iowa", 2_927_000, group="RAM"), "is priced by h"),
        (
            2,
            sku("AAAA-0003", "G2 Instance Ram running in Iowa", 1, group="RAM", unit="GiBy.mo"),
            "is priced by GiBy.mo",
        ),
        (1, sku("X", "G4 Instance Core running in Iowa", 1, group="CPU"), "no price of vCPUs of G2"),
        (0, sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 0), "0 is not a price"),
        (0, sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 0, units="700"), "placeholder of another tool"),
        (0, sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 950_000_000), "placeholder of another tool"),
        (0, sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 0, units="70000"), "too high to be a price"),
    ],
)
def test_a_price_that_cannot_be_taken_is_left_alone_with_its_reason(index: int, new: Any, words: str) -> None:
    skus = google_skus()
    skus[index] = new
    export = read(google(*skus), IOWA)
    assert [one.accelerator for one in export.prices] == ["nvidia-h100-80gb"]
    assert words in " ".join(left(export).values())


def test_two_prices_of_one_thing_are_not_chosen_between() -> None:
    twin = sku("AAAA-0009", "Nvidia L4 GPU running in Salt Lake City", 600_000_000)
    export = read(google(*google_skus(), twin), IOWA)
    assert [one.accelerator for one in export.prices] == ["nvidia-h100-80gb"]
    assert "2 prices of the GPU there (AAAA-0001, AAAA-0009)" in " ".join(left(export).values())


def test_a_free_allowance_is_not_the_price() -> None:
    skus = google_skus()
    skus[0] = sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 560_000_000, free=True)
    assert {one.usd for one in read(google(*skus), IOWA).prices} == {Decimal("0.56"), Decimal("9.796")}


def test_spot_prices_are_another_tier() -> None:
    spot = [
        sku("S1", "Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa", 220_000_000, usage="Preemptible"),
        sku("S2", "Spot Preemptible G2 Instance Core running in Iowa", 9_000_000, group="CPU", usage="Preemptible"),
        sku(
            "S3", "Spot Preemptible G2 Instance Ram running in Iowa", 1, group="RAM", unit="GiBy.h", usage="Preemptible"
        ),
    ]
    (l4,) = read(google(*google_skus()[:4], *spot[1:]), WantedPrices(None, "spot")).prices
    assert l4.usd == Decimal("0.22")
    assert "no spot prices" in refused(aws(), WantedPrices(None, "spot"))


def test_aws_s_instances_become_prices_of_instances() -> None:
    export = read(aws())
    found = {one.key: (one.usd, one.includes) for one in export.prices}
    everything = ("cpu", "memory")
    assert found == {
        ("nvidia-a100-80gb", 8, "p4de.24xlarge"): (Decimal("30.4"), everything),
        ("nvidia-l4", 1, "g6.xlarge"): (Decimal("0.9"), everything),
        ("nvidia-l4", 1, "g6.2xlarge"): (Decimal("1.1"), everything),
        ("nvidia-l4", 4, "g6.12xlarge"): (Decimal("5.2"), everything),
    }
    assert (export.date, export.region, export.others) == (date(2026, 6, 15), "eu-west-1", 2)
    assert left(export) == {"zz9.xlarge": "no accelerator is known by this family"}
    (big,) = (one.instance for one in export.prices if one.instance and one.count == 8)
    assert (big.vcpu, big.memory_gib) == (96, Decimal(1152))


@pytest.mark.parametrize("usd", ["21.5000000000", "0.0000000000"])
@pytest.mark.parametrize("other", [{"marketoption": "CapacityBlock"}, {"operation": "RunInstances:0g00"}])
def test_what_is_sold_in_another_way_is_not_the_price_on_demand(other: dict[str, str], usd: str) -> None:
    value = aws()
    plain = {"marketoption": "OnDemand", "operation": "RunInstances"}
    value["products"]["P4DE"] = product("P4DE", "p4de.24xlarge", 8, 96, "1,152 GiB", **plain)
    value["products"]["BLOCK"] = product("BLOCK", "p4de.24xlarge", 8, 96, "1,152 GiB", **plain | other)
    value["terms"]["OnDemand"]["BLOCK"] = offer("BLOCK", usd)
    export = read(value)
    assert [one.usd for one in export.prices if one.count == 8] == [Decimal("30.4")]
    assert set(left(export)) == {"zz9.xlarge"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value: value["terms"]["OnDemand"].pop("P4DE"), "no price on demand"),
        (lambda value: value["terms"]["OnDemand"].update(P4DE=offer("P4DE", "0.0000000000")), "not a price"),
        (lambda value: value["terms"]["OnDemand"].update(P4DE=offer("P4DE", "30", "Quantity")), "not by hours"),
        (lambda value: value["terms"]["OnDemand"].update(P4DE=offer("P4DE", "30", currency="CNY")), "CNY, not in USD"),
        (lambda value: value["products"].update(P4DE=product("P4DE", "p4de.24xlarge", 8, 96, "NA")), "size"),
        (lambda value: value["products"].update(X=product("L4XL", "p4de.24xlarge", 8, 96, "9 GiB")), "more than once"),
    ],
)
def test_an_instance_without_a_plain_price_is_left_alone(change: Any, words: str) -> None:
    value = aws()
    change(value)
    export = read(value)
    assert "nvidia-a100-80gb" not in {one.accelerator for one in export.prices}
    assert words in " ".join(left(export).values())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("{", "is not JSON"),
        ("[1]", "neither `skus` nor `products`"),
        ({"skus": 1}, "skus: is not a list"),
        ({**google(), "nextPageToken": "AB=="}, "nextPageToken: says that more pages follow"),
        (google({"skuId": "A", "category": {}}), "skus[0].description: is missing"),
        (
            google(*google_skus()[:3], {**google_skus()[4], "pricingInfo": [{"effectiveTime": "x"}]}),
            "pricingExpression",
        ),
        (google(sku("A", "Nvidia L4 GPU running in Iowa", 1, day="yesterday")), "pricingInfo[0].effectiveTime"),
        ({**aws(), "offerCode": "AmazonS3"}, "offer file of AmazonEC2"),
        ({**aws(), "publicationDate": "soon"}, "publicationDate: 'soon' is not a time"),
        ({**aws(), "publicationDate": "2031-01-01T00:00:00Z"}, "in the future"),
        ({"products": {}}, "offerCode: is missing"),
        (google(sku("A", "Storage", 1, group="SSD")), "accelerators in 0 regions"),
    ],
)
def test_a_bad_file_gets_a_sentence(value: Any, words: str) -> None:
    assert words in refused(value)


def test_another_currency_and_another_region_are_refused() -> None:
    skus = google_skus()
    skus[0]["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]["currencyCode"] = "EUR"
    assert "currencyCode=USD" in refused(google(*skus), IOWA)
    assert "--region: europe-west1, us-central1" in refused(google())
    assert "Did you mean 'us-central1'?" in refused(google(), WantedPrices("us-central2", "on-demand"))


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inside for place in _places(item, (*path, key)))]


_ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["a: [b] # \u2028", "${{ x }}", "!!python/object", "700.0", "NaN", "1e9", "\ud800", "\0", "0.0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=examples(400))
@given(st.data())
def test_anything_anywhere_in_a_file_gives_real_prices_or_a_sentence(data: st.DataObject) -> None:
    value: Any = copy.deepcopy(data.draw(st.sampled_from([google(), aws()])))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([one for one in _places(value) if one]))
        inside = value
        for key in path:
            inside = inside[key]
        inside[last] = data.draw(_ODD)
    wanted = IOWA if "skus" in value else IRELAND
    try:
        export = read(value, wanted)
    except InputError:
        return  # a sentence, and nothing else
    update = updated("a-list", None, None, export, Decimal("1.5"))
    again = parse(PriceList, update.text, update.path)
    assert {one.key for one in again.prices} == {one.key for one in export.prices}
    assert all(0 < one.usd < 10_000 for one in again.prices)
    assert not {Decimal(700), Decimal("0.95")} & {one.usd for one in again.prices}
    assert updated("a-list", update.text, again, export, Decimal("1.5")).text == update.text
