"""Prints the rooms of src/neuroscale as Markdown: a table, and the imports between them as a Mermaid chart.

Usage: python scripts/rooms.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import grimp

PACKAGE = "neuroscale"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE


def main() -> int:
    """Returns 0."""
    sys.path.insert(0, str(SOURCE.parent))
    imports = room_imports()
    print("| room | modules | longest | imports |\n|---|---|---|---|")
    for room in sorted(imports, key=lambda name: (len(below(name, imports)), name)):
        files = list((SOURCE / room).rglob("*.py"))
        longest = max(files, key=line_count)
        told = f"{longest.relative_to(SOURCE / room)} ({line_count(longest)} lines)"
        print(f"| {room} | {len(files)} | {told} | {', '.join(sorted(imports[room]))} |")
    print("\n```mermaid\nflowchart BT")
    for room, targets in sorted(imports.items()):
        # Leave out an arrow if other arrows connect the two rooms already.
        implied = {room_below for target in targets for room_below in below(target, imports)}
        for target in sorted(targets - implied):
            print(f"  {room} --> {target}")
    print("```")
    return 0


def room_imports() -> dict[str, set[str]]:
    """For each room, the other rooms that its modules import."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    rooms = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file()}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for module in graph.modules:
        room = room_of(module)
        if room in rooms:
            found[room] |= {room_of(one) for one in graph.find_modules_directly_imported_by(module)} & rooms - {room}
    return found


def room_of(module: str) -> str:
    """The room of a module's full name, or "" for the package's own modules."""
    return module.split(".")[1] if "." in module else ""


def below(room: str, imports: dict[str, set[str]]) -> set[str]:
    """Every room that a room imports, directly or through others. Rooms never import each other in a circle."""
    return imports[room] | {one for target in imports[room] for one in below(target, imports)}


def line_count(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    sys.exit(main())
