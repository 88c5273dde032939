"""The constructs of random programs (random_program.py): tables by what they are about."""

from random_programs.arguments import ARGUMENTS
from random_programs.attributes import ATTRIBUTES
from random_programs.callables import CALLABLES
from random_programs.classes import CLASSES
from random_programs.containers import CONTAINERS
from random_programs.effects import EFFECTS
from random_programs.everyday import EVERYDAY
from random_programs.objects import OBJECTS
from random_programs.questions import QUESTIONS
from random_programs.state import STATE
from random_programs.submodules import SUBMODULES
from random_programs.writes import WRITES

TABLES = (
    ATTRIBUTES,
    CLASSES,
    CONTAINERS,
    CALLABLES,
    QUESTIONS,
    STATE,
    WRITES,
    SUBMODULES,
    ARGUMENTS,
    EFFECTS,
    EVERYDAY,
    OBJECTS,
)
CONSTRUCTS = {construct.name: construct for table in TABLES for construct in table}
assert len(CONSTRUCTS) == sum(map(len, TABLES))
