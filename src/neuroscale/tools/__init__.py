"""Set-up: the Python environment, the upstream tools and the schemas.

Inputs: the pins that this package delivers, a purpose, and a bundle of built tools where somebody offers one. Outputs:
the checkout's `.venv`, and the tool cache with tools, schemas, vLLM and guidellm; `model_server` and
`guidellm_environment` find the last two.

It runs with the system's Python before anything is installed, so it imports only the standard library, and only those
modules of the package that do the same. Other programs run `schema_build` and `tiny_model`, with the packages that
set-up installed.
"""
