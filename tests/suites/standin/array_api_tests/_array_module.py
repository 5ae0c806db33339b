"""The functions under test, as attributes."""

import os
from importlib import import_module

_module = import_module(os.environ["ARRAY_API_TESTS_MODULE"])
globals().update({name: getattr(_module, name) for name in dir(_module) if not name.startswith("_")})
