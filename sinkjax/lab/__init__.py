"""Studies as traced functions.

A study is a function of a `Lab` and its settings, which lists sweeps, claims and figures. It is called on placeholders for a
plan, with a model for a run, and on stores for a page. The names that most studies use are here; rarer ones are imported from
the modules of this folder.
"""

from sinkjax.lab.contrasts import Contrast as Contrast
from sinkjax.lab.contrasts import difference as difference
from sinkjax.lab.contrasts import effect as effect
from sinkjax.lab.contrasts import moved as moved
from sinkjax.lab.contrasts import part as part
from sinkjax.lab.contrasts import unedited as unedited
from sinkjax.lab.figures import activations as activations
from sinkjax.lab.figures import by_layer as by_layer
from sinkjax.lab.figures import dots as dots
from sinkjax.lab.figures import lines as lines
from sinkjax.lab.figures import lines_along as lines_along
from sinkjax.lab.measures import Measure as Measure
from sinkjax.lab.measures import attention_to as attention_to
from sinkjax.lab.measures import largest_activation as largest_activation
from sinkjax.lab.measures import loss as loss
from sinkjax.lab.measures import own as own
from sinkjax.lab.measures import percentage as percentage
from sinkjax.lab.measures import sink_rate as sink_rate
from sinkjax.lab.measures import strongest_other_attention as strongest_other_attention
from sinkjax.lab.places import ALL as ALL
from sinkjax.lab.places import Case as Case
from sinkjax.lab.places import Place as Place
from sinkjax.lab.places import each as each
from sinkjax.lab.places import layer as layer
from sinkjax.lab.places import prefixes as prefixes
from sinkjax.lab.places import upto as upto
from sinkjax.lab.premises import MASSIVE_SIZE as MASSIVE_SIZE
from sinkjax.lab.premises import Premise as Premise
from sinkjax.lab.premises import all_of as all_of
from sinkjax.lab.premises import is_sink as is_sink
from sinkjax.lab.premises import reaches as reaches
from sinkjax.lab.settings import Controlled as Controlled
from sinkjax.lab.settings import Judged as Judged
from sinkjax.lab.settings import Mapped as Mapped
from sinkjax.lab.settings import OnText as OnText
from sinkjax.lab.settings import Sinks as Sinks
from sinkjax.lab.took import ISOLATED as ISOLATED
from sinkjax.lab.took import MASKED as MASKED
from sinkjax.lab.took import WRITTEN as WRITTEN
from sinkjax.lab.took import planted as planted
from sinkjax.lab.took import removed as removed
from sinkjax.lab.trace import Lab as Lab
from sinkjax.lab.trained import versus as versus
from sinkjax.lab.work import Sweep as Sweep
from sinkjax.lab.work import Where as Where
