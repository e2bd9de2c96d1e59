"""Studies: one experiment as a file, carried out, priced, attacked and written down.

``study`` is the file, ``simulation`` and ``cohort_study`` carry it out, ``assembly`` puts whole jobs
together for the command line, ``output`` is what they leave on disk.
"""

from privfed.study.study import (
    BUILT_IN,
    ClientsChoice,
    DataChoice,
    LearnerChoice,
    PolicyChoice,
    Study,
)

__all__ = ["BUILT_IN", "ClientsChoice", "DataChoice", "LearnerChoice", "PolicyChoice", "Study"]
