"""Alertmanager's configuration: each team its own alerts, and nothing for a repository that does not ask for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from neuroscale.rendering.platform import alertmanager
from neuroscale.rendering.platform.files import differences, is_rendered, render_repository
from neuroscale.repo.layout import FileClass, file_class, is_protected
from neuroscale.repo.snapshot import FolderSnapshot
from platform_repository import copy_platform, edit, rendered_platform

ALERTING = (
    '    alerting: {fallback: {webhook: "https://alerts.example.com/platform"}, '
    'smtp: {smarthost: "mail.example.com:587", sender: "alerts@example.com", username: sender, '
    "password_file: /etc/alertmanager/secrets/mail/password}}\n"
)
PATH = "platform/monitoring/alertmanager-dev.yaml"


def asking(tmp_path: Path) -> Path:
    """A copy of this repository's platform whose environment dev asks for alerts, two of its teams with a contact."""
    root = copy_platform(tmp_path / "platform")
    edit(root, "platform/settings.yaml", "  dev:\n", f"  dev:\n{ALERTING}")
    teams = {
        "team-alpha": "{webhook_file: /etc/alertmanager/secrets/team-alpha/url}",
        "team-beta": '{webhook: "https://alerts.example.com/beta", email: "beta@example.com"}',
    }
    for name, alerts in teams.items():
        edit(root, f"platform/catalog/teams/{name}.yaml", f"name: {name}\n", f"name: {name}\nalerts: {alerts}\n")
    return root


def test_nothing_is_rendered_for_a_repository_that_does_not_ask_for_it() -> None:
    assert [path for path in rendered_platform() if alertmanager.is_configuration(path)] == []


def test_each_team_with_a_contact_gets_its_own_alerts_and_the_fallback_all_others(tmp_path: Path) -> None:
    root = asking(tmp_path)
    files = render_repository(FolderSnapshot(root))
    assert [path for path in files if alertmanager.is_configuration(path)] == [PATH]
    found: dict[str, Any] = yaml.safe_load(files[PATH])
    assert found["global"] == {
        "smtp_smarthost": "mail.example.com:587",
        "smtp_from": "alerts@example.com",
        "smtp_auth_username": "sender",
        "smtp_auth_password_file": "/etc/alertmanager/secrets/mail/password",
    }
    assert found["route"] == {
        "receiver": "fallback",
        "group_by": ["alertname", "namespace", "service"],
        "group_wait": "30s",
        "group_interval": "300s",
        "repeat_interval": "4h",
        "routes": [
            {"receiver": "nobody", "matchers": ['severity="none"']},
            {"receiver": "team/team-alpha", "matchers": ['namespace="team-alpha"']},
            {"receiver": "team/team-beta", "matchers": ['namespace="team-beta"']},
        ],
    }
    assert found["receivers"] == [
        {"name": "nobody"},
        {
            "name": "fallback",
            "webhook_configs": [{"url": "https://alerts.example.com/platform", "send_resolved": True}],
        },
        {
            "name": "team/team-alpha",
            "webhook_configs": [{"url_file": "/etc/alertmanager/secrets/team-alpha/url", "send_resolved": True}],
        },
        {
            "name": "team/team-beta",
            "webhook_configs": [{"url": "https://alerts.example.com/beta", "send_resolved": True}],
            "email_configs": [{"to": "beta@example.com", "send_resolved": True}],
        },
    ]


def test_the_file_is_compared_as_every_rendered_one_and_removed_when_nobody_asks_for_it(tmp_path: Path) -> None:
    root = asking(tmp_path)
    snapshot = FolderSnapshot(root)
    files = render_repository(snapshot)
    told = [(one.where, one.message) for one in differences(snapshot, files)]
    assert told == [(PATH, "is missing")]
    (root / PATH).write_text(files[PATH].replace("beta@example.com", "other@example.com"))
    (changed,) = differences(snapshot, files)
    assert (changed.where, changed.message.split(" ")[0]) == (PATH, "differs")
    (root / PATH).write_text(files[PATH])
    assert differences(snapshot, files) == []
    edit(root, "platform/settings.yaml", ALERTING, "")
    (left,) = differences(FolderSnapshot(root), render_repository(FolderSnapshot(root)))
    assert (left.where, left.fix) == (PATH, "Remove it.")


def test_only_an_owner_may_change_it_and_argo_cd_does_not_apply_it() -> None:
    assert is_rendered(PATH)
    assert file_class(PATH) is FileClass.RENDERED
    assert is_protected(PATH)
    # Argo CD applies the folders of environments, and not what lies beside them.
    assert PATH.count("/") == 2
