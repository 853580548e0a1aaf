"""Studies: what is changed, measured and claimed, as declarations, and the one framework that runs them all.

What a declaration is made of is imported from here: `from sinkjax.studies import Claim, Condition, Study, above, effect, lines`.
"""

from sinkjax.analysis.claims import Claim as Claim
from sinkjax.analysis.estimates import Absent as Absent
from sinkjax.analysis.estimates import Quantity as Quantity
from sinkjax.analysis.estimates import number as number
from sinkjax.analysis.estimates import quantity as quantity
from sinkjax.analysis.rules import Rule as Rule
from sinkjax.analysis.rules import above as above
from sinkjax.analysis.rules import all_of as all_of
from sinkjax.analysis.rules import at_least as at_least
from sinkjax.analysis.rules import below as below
from sinkjax.analysis.rules import within as within
from sinkjax.analysis.summary import Row as Row
from sinkjax.report.figures.points import Point as Point
from sinkjax.studies.config import StudyConfig as StudyConfig
from sinkjax.studies.figures import Figure as Figure
from sinkjax.studies.figures import Panel as Panel
from sinkjax.studies.figures import activations as activations
from sinkjax.studies.figures import lines as lines
from sinkjax.studies.measures import largest_activation as largest_activation
from sinkjax.studies.measures import largest_elsewhere as largest_elsewhere
from sinkjax.studies.measures import loss as loss
from sinkjax.studies.measures import sink_note as sink_note
from sinkjax.studies.measures import sink_rate as sink_rate
from sinkjax.studies.quantities import effect as effect
from sinkjax.studies.quantities import listed as listed
from sinkjax.studies.results import Results as Results
from sinkjax.studies.study import NO_EDIT as NO_EDIT
from sinkjax.studies.study import Condition as Condition
from sinkjax.studies.study import Measure as Measure
from sinkjax.studies.study import Study as Study
