"""The roots of paths: which values an expression can read, and where.

everywhere          input_   state   ctx   kv
in a branch         output: the new output of the step; ref("key") reads its keys too
in `output`         result: the value that the executor returned
in a map            item, or ref() with the name in `as_`; index
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
