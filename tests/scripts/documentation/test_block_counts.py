"""The count of code blocks knows every page and every treatment."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.documentation.block_counts import NOT_EXECUTED, OWN_TESTS, SAMPLE, count_blocks, report
from scripts.documentation.staging import DOCS, ROOT

PAGE = """\
<!-- test: console -->
```console
$ true
```

<!-- test: picture -->
```text
a -> b
```

```text
a.b=c
```

```text
┌─┐
```
"""


def test_blocks_are_executed_unless_there_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE)

    counted = count_blocks(tmp_path, [tmp_path / "page.md"])

    drawing = NOT_EXECUTED["picture"]
    assert [(one.line, one.reason) for one in counted] == [
        (1, None),
        (6, drawing),
        (11, SAMPLE),
        (15, drawing),
    ]
    assert report(counted, 1).startswith("1 written pages, 4 code blocks: 1 executed, 3 not executed\n")


def test_the_pages_with_tests_of_their_own_have_them() -> None:
    for page, test in OWN_TESTS.items():
        assert (ROOT / page).exists(), page
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8"), test


def test_every_page_with_executed_blocks_is_read_by_a_test() -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*docs.py"))
    counted = count_blocks(ROOT, sorted(DOCS.glob("*.md")))

    executed = {Path(one.page).stem for one in counted if one.reason is None}

    assert len(executed) > 30
    assert [name for name in sorted(executed) if not re.search(rf'["/]{name}(?:\.md)?\b', tests)] == []
