"""Where this folder is on PYTHONPATH, TensorFlow and Keras leave out what they could do without.

Both import JAX, scikit-learn, Matplotlib and SciPy where those are installed: half of the eight
seconds that `import tensorflow` takes. Whoever else imports these packages gets them as ever.
"""

import os
import sys

_OPTIONAL = {"jax", "matplotlib", "pandas", "scipy", "sklearn"}


class _LeftOut:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in _OPTIONAL:
            frame = sys._getframe(1)
            while frame and frame.f_globals.get("__name__", "").startswith("importlib."):
                frame = frame.f_back
            asking = frame.f_globals.get("__name__", "") if frame else ""
            if asking.partition(".")[0] in ("keras", "tensorflow"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
    sys.meta_path.insert(0, _LeftOut)
