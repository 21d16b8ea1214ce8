"""What a command, a page or an agent does with the rooms below: it opens, asks, judges and brings together. It knows no
face: it prints nothing, and a problem names a field, which each face spells."""
