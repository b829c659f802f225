"""One of each thing that a package can add to accord; `accord.plugins` is all that it imports of it."""
