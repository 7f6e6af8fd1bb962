"""A self-distillation loss for models whose pretraining heads are not published.

The IsSameObject paper reports the DINO loss under edits (Table 2; appendix A.6 was not available),
but backbones of DINOv2 are released without projection heads. Here the unedited model is the
teacher and the edited one the student of the same image; the teacher's test images are the
prototypes. Compare directions with the published ones, not values.
"""

from __future__ import annotations

import numpy as np
from scipy.special import log_softmax, softmax

from bindscope.core.array_types import Doubles

TEACHER, STUDENT = 0.04, 0.1  # temperatures (Caron et al., arXiv 2104.14294)
TINY = 1e-12


def proxy_losses(teacher: Doubles, student: Doubles) -> Doubles:
    """Return the cross-entropy of each image in bits, (n,).

    Parameters
    ----------
    teacher, student
        A vector of each image from the unedited and the edited model, (d, n). Both are centered by
        the teacher's mean and scaled to length 1.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.eye(3)
    >>> bool((proxy_losses(x, x) < proxy_losses(x, x[:, [1, 2, 0]])).all())
    True
    """
    center = teacher.mean(1, keepdims=True)
    first, second = (_unit(part - center) for part in (teacher, student))
    targets = softmax(first.T @ first / TEACHER, axis=1)
    predicted = log_softmax(second.T @ first / STUDENT, axis=1)
    losses: Doubles = -(targets * predicted).sum(1) / np.log(2)
    return losses


def _unit(columns: Doubles) -> Doubles:
    lengths = np.linalg.norm(columns, axis=0, keepdims=True)
    scaled: Doubles = columns / np.maximum(lengths, TINY)
    return scaled
