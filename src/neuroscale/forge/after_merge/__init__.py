"""Acts on a merge: results of its smoke tests come in; a comment, and a revert of a failing service, go out."""
