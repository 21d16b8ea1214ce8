"""A problem names a field, and each face spells it."""

from __future__ import annotations

from neuroscale.core.errors import ASKED, Face, InputError, Problem, action_of, field_of

PROBLEM = Problem(
    ASKED,
    "to",
    "'mars' is not an environment",
    f"Name another one, say why ({field_of('reason', 'TEXT')}), or {action_of('request')} {field_of('service')}.",
)


def test_the_command_line_spells_options_and_commands() -> None:
    told = "Name another one, say why (--reason TEXT), or neuroscale request SERVICE."
    assert str(PROBLEM) == f"the command line: --to: 'mars' is not an environment. {told}"
    assert str(InputError(PROBLEM)) == str(PROBLEM)


def test_another_face_spells_them_in_its_own_way() -> None:
    page = Face("the page", lambda name, _: name.title(), lambda name: f"the form {name}")
    told = PROBLEM.on(page)
    assert (told.where, told.field) == ("the page", "To")
    assert told.fix == "Name another one, say why (Reason), or the form request Service."
    assert told.on(page) == told
    file = Problem("settings.yaml", "to", "is wrong", "Mend it.", 3)
    assert file.on(page) == file
