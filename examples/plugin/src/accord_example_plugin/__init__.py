"""One of each thing that a package can add to accord; it imports `accord.api` and `accord.workflows` alone."""
