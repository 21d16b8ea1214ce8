"""Renders Alertmanager's configuration of each environment whose settings ask for it: each team gets its own alerts.

An alert belongs to the team of its label `namespace`. The file holds no secret: it names the files that do.
"""

from __future__ import annotations

import re
from typing import Any, Final

from neuroscale.catalog import Catalog
from neuroscale.catalog.alert_contacts import AlertContact, Alerting
from neuroscale.catalog.settings import Settings
from neuroscale.core.yaml_io import dump

_FALLBACK: Final = "fallback"
_NOBODY: Final = "nobody"
_PATH: Final = "platform/monitoring/alertmanager-{}.yaml"
_HEAD: Final = """\
# Rendered from platform/settings.yaml and platform/catalog/teams: the configuration of this environment's Alertmanager.
# Make it the key alertmanager.yaml of a Secret, as platform/README.md says ("Who gets the alerts").
"""


def path_of(environment: str) -> str:
    """The file of an environment."""
    return _PATH.format(environment)


def is_configuration(path: str) -> bool:
    """Whether a path has the form of such a file."""
    return re.fullmatch(_PATH.replace(".", r"\.").replace("{}", r"[^/]+"), path) is not None


def render(catalog: Catalog, settings: Settings) -> dict[str, str]:
    """The files by their path; none where no environment has `alerting`."""
    return {
        path_of(name): _HEAD + dump(configuration(environment.alerting, catalog))
        for name, environment in settings.environments.items()
        if environment.alerting is not None
    }


def configuration(alerting: Alerting, catalog: Catalog) -> dict[str, Any]:
    """The configuration in Alertmanager's own format."""
    contacts = {
        f"team/{team.name}": (team.namespace, team.alerts) for team in catalog.teams.values() if team.alerts is not None
    }
    smtp = alerting.smtp
    mail = (
        {
            "smtp_smarthost": smtp.smarthost,
            "smtp_from": smtp.sender,
            "smtp_auth_username": smtp.username,
            "smtp_auth_password_file": smtp.password_file,
        }
        if smtp
        else {}
    )
    return {
        **({"global": {key: value for key, value in mail.items() if value is not None}} if mail else {}),
        "route": {
            "receiver": _FALLBACK,
            "group_by": ["alertname", "namespace", "service"],
            "group_wait": f"{alerting.group_wait_seconds}s",
            "group_interval": f"{alerting.group_interval_seconds}s",
            "repeat_interval": f"{alerting.repeat_hours}h",
            "routes": [
                # Such alerts of the chart kube-prometheus-stack fire always, and nobody shall act.
                {"receiver": _NOBODY, "matchers": ['severity="none"']},
                *(
                    {"receiver": name, "matchers": [f'namespace="{namespace}"']}
                    for name, (namespace, _) in contacts.items()
                ),
            ],
        },
        "receivers": [
            {"name": _NOBODY},
            _receiver(_FALLBACK, alerting.fallback),
            *(_receiver(name, contact) for name, (_, contact) in contacts.items()),
        ],
    }


def _receiver(name: str, contact: AlertContact) -> dict[str, Any]:
    webhook = {"url": contact.webhook, "url_file": contact.webhook_file, "send_resolved": True}
    by_web = [{key: value for key, value in webhook.items() if value is not None}]
    by_mail = [{"to": contact.email, "send_resolved": True}]
    return {
        "name": name,
        **({"webhook_configs": by_web} if contact.webhook or contact.webhook_file else {}),
        **({"email_configs": by_mail} if contact.email else {}),
    }
