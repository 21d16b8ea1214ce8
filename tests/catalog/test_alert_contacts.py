"""Whom alerts reach: addresses that may stand in Git, and those that hold a secret and may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroscale.catalog import load_catalog
from neuroscale.catalog.loading import entry_of
from neuroscale.catalog.settings import check_settings, load_settings
from neuroscale.core.errors import InputError
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import copy_platform, edit
from roots import ROOT

TEAM = (ROOT / "platform/catalog/teams/team-alpha.yaml").read_text()


def refusal(alerts: str) -> str:
    """What is said of a team's file with these contacts; "" if nothing is."""
    try:
        entry_of("teams", f"{TEAM}alerts: {alerts}\n", "team-alpha.yaml")
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "alerts",
    [
        '{webhook: "https://alerts.example.com/neuroscale/team-alpha"}',
        '{webhook: "https://alerts.example.com:8443/"}',
        '{webhook: "http://alert-receiver.monitoring.svc:8080/team-alpha"}',
        '{webhook: "http://127.0.0.1:9999/hook"}',
        "{webhook_file: /etc/alertmanager/secrets/team-alpha/url}",
        '{email: "oncall+alpha@example.com", webhook: "https://alerts.example.com/alertmanager-webhook"}',
    ],
)
def test_a_contact_without_a_secret_is_taken(alerts: str) -> None:
    assert refusal(alerts) == ""


@pytest.mark.parametrize(
    ("secret", "address"),
    [
        ("hunter2", "https://alpha:hunter2@alerts.example.com/"),
        ("abc", "https://alerts.example.com/hook?key=abc"),
        ("abc", "https://alerts.example.com/hook#abc"),
        ("XXXXXXXXxxxxxxxxYYYYYYYY", "https://hooks.example.com/services/T0/B0/XXXXXXXXxxxxxxxxYYYYYYYY"),
        ("0f9a8b7c6d5e", "https://hooks.example.com/0f9a8b7c6d5e"),
        ("550e8400-e29b-41d4-a716-446655440000", "https://hooks.example.com/550e8400-e29b-41d4-a716-446655440000/in"),
        ("QwertyuiopAsdfghjklZxcvbn", "https://hooks.example.com/QwertyuiopAsdfghjklZxcvbn"),
    ],
)
def test_an_address_with_a_secret_is_refused_and_never_repeated(secret: str, address: str) -> None:
    said = refusal(f'{{webhook: "{address}"}}')
    assert "team-alpha.yaml" in said
    assert "alerts.webhook" in said
    assert "webhook_file" in said
    assert secret not in said


@pytest.mark.parametrize(
    ("alerts", "told"),
    [
        ('{webhook: "http://alerts.example.com/"}', "is not encrypted"),
        ('{webhook: "alerts.example.com"}', "is not a web address"),
        ('{webhook: "https://alerts.example.com/a b"}', "is not a web address"),
        ("{webhook_file: secrets/url}", "not the absolute path"),
        ("{webhook_file: /etc/../url}", "not the absolute path"),
        ('{email: "a@example.com, b@example.com"}', "is not one e-mail address"),
        ("{}", "names no way to reach anybody"),
        ('{webhook: "https://a.example.com/", webhook_file: /etc/url}', "names a webhook twice"),
        ("{pager: 1}", "pager"),
    ],
)
def test_another_contact_is_refused_with_what_to_write(alerts: str, told: str) -> None:
    assert told in refusal(alerts)


def test_a_team_without_a_contact_keeps_its_digest_and_one_with_it_has_another(tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    before = load_catalog(FolderSnapshot(root))
    edit(
        root,
        "platform/catalog/teams/team-alpha.yaml",
        "name: team-alpha\n",
        'name: team-alpha\nalerts: {email: "a@b.example"}\n',
    )
    after = load_catalog(FolderSnapshot(root))
    keys = before.keys()
    changed = {key for key in keys if before.entry_digest(key) != after.entry_digest(key)}
    assert changed == {"team/team-alpha"}


@pytest.mark.parametrize(
    ("alerting", "told"),
    [
        ('{fallback: {webhook: "https://alerts.example.com/"}}', "teams/team-alpha.yaml"),
        ('{fallback: {email: "platform@example.com"}}', "environments.dev.alerting.fallback, platform/catalog/teams"),
        (
            '{fallback: {email: "p@example.com"}, smtp: {smarthost: "mail.example.com:587", sender: "a@example.com"}}',
            "",
        ),
    ],
)
def test_e_mail_needs_a_mail_server_and_everybody_who_wants_it_is_named(
    alerting: str, told: str, tmp_path: Path
) -> None:
    root = copy_platform(tmp_path / "platform")
    edit(
        root,
        "platform/catalog/teams/team-alpha.yaml",
        "name: team-alpha\n",
        'name: team-alpha\nalerts: {email: "a@b.example"}\n',
    )
    edit(root, "platform/settings.yaml", "  dev:\n", f"  dev:\n    alerting: {alerting}\n")
    snapshot = FolderSnapshot(root)
    settings, catalog = load_settings(snapshot), load_catalog(snapshot)
    if not told:
        check_settings(settings, catalog)
        return
    with pytest.raises(InputError, match=r"environments\.dev\.alerting\.smtp: is missing") as refused:
        check_settings(settings, catalog)
    assert sorted(told.split(", "))[0] in str(refused.value)


@pytest.mark.parametrize(
    ("smtp", "told"),
    [
        ('{smarthost: "mail.example.com", sender: "a@example.com"}', "smarthost"),
        (
            '{smarthost: "mail.example.com:587", sender: "a@example.com", username: a}',
            "one of username and password_file",
        ),
        (
            '{smarthost: "mail.example.com:587", sender: "a@example.com", username: a, password_file: word}',
            "not the absolute path",
        ),
    ],
)
def test_a_mail_server_that_cannot_be_used_is_refused(smtp: str, told: str, tmp_path: Path) -> None:
    root = copy_platform(tmp_path / "platform")
    alerting = f'{{fallback: {{email: "p@example.com"}}, smtp: {smtp}}}'
    edit(root, "platform/settings.yaml", "  dev:\n", f"  dev:\n    alerting: {alerting}\n")
    with pytest.raises(InputError, match=told):
        load_settings(FolderSnapshot(root))
