"""Where paths begin: what every expression of a workflow can see, and what some can.

everywhere          input_   state   ctx   kv
in a branch         output: what the step has just given; its keys can be read as ref("key") too
in `output`         result: what the executor returned
in a map            item, or ref() with the name that `as_` says; index
in a source         sources: the values of sources of type env
"""

from __future__ import annotations

from orchestrator.builder.expressions import ref

input_ = ref("input")
state = ref("state")
ctx = ref("ctx")
kv = ref("kv")
output = ref("output")
result = ref("result")
item = ref("item")
index = ref("index")
sources = ref("sources")
