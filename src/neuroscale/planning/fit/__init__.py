"""Judges whether a model fits: its facts, a device and arguments come in; the memory of a rank and a verdict go out."""

from neuroscale.planning.fit.argument_defaults import Resolved
from neuroscale.planning.fit.command_changes import OtherCandidates, choices
from neuroscale.planning.fit.device import Device, device
from neuroscale.planning.fit.drafts import draft_method, with_draft
from neuroscale.planning.fit.engine import fit
from neuroscale.planning.fit.result import Choice, Fit
from neuroscale.planning.fit.versions import PINNED

__all__ = [
    "PINNED",
    "Choice",
    "Device",
    "Fit",
    "OtherCandidates",
    "Resolved",
    "choices",
    "device",
    "draft_method",
    "fit",
    "with_draft",
]
