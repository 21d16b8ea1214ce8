"""From a request and the catalog to a plan. Everything here is pure."""
