"""The executor `process`: what it runs, what it rejects, and that it leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator_executors import process as module
from orchestrator_executors.folders import ROOT_VARIABLE
from orchestrator_executors.guarded import GUARD_SCRIPT
from orchestrator_executors.process import ProcessFailed, process
from orchestrator_executors.settings import ENV_VARIABLES, Refused
from processes import ROOT, is_running, wait_until

Json = dict[str, Any]
PYTHON = sys.executable

FAMILY = """
import os, sys, time

def note():
    with open(sys.argv[1], "a") as pids:
        pids.write(f"{os.getpid()}\\n")

note()
for n in range(3):
    if os.fork() == 0:
        note()
        if n == 0:  # a daemon: it leaves its session and its parent
            os.setsid()
            if os.fork():
                os._exit(0)
            os.setsid()
            note()
        while True:
            time.sleep(60)
while len(open(sys.argv[1]).readlines()) < 5:
    time.sleep(0.01)
print("begun", flush=True)
"""
"""Five processes that write their pids; one of those that never end is a daemon."""


@pytest.fixture(autouse=True)
def _a_worker_that_runs_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (ENV_VARIABLES, ROOT_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    allow(monkeypatch, f"echo, cat, sleep, sh, env, {PYTHON}")


def allow(monkeypatch: pytest.MonkeyPatch, commands: str) -> None:
    monkeypatch.setenv(module.COMMANDS_VARIABLE, commands)


def run(inputs: Json, configuration: Json | None = None, **others: Any) -> Json:
    given = {"heartbeat": lambda: None, "log": lambda text: None, "cancelled": lambda: False, **others}
    return process(inputs, configuration or {}, **given)  # type: ignore[arg-type]


def python(text: str, *args: str, **settings: Any) -> Json:
    return {"command": [PYTHON, "-c", text, *args], **settings}


def noted(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


# ---- the command


def test_what_a_program_prints_is_its_output() -> None:
    output = run(python("import sys; print('out'); print('err', file=sys.stderr)"))

    assert output == {"stdout": "out\n", "stderr": "err\n", "returncode": 0}


def test_what_a_program_prints_as_json_is_read() -> None:
    assert run({"command": ["echo", '{"a": [1, "ä"]}']})["json"] == {"a": [1, "ä"]}
    assert "json" not in run({"command": ["echo", "NaN"]})
    assert "json" not in run({"command": ["echo", '"\\ud800"']})
    assert "json" not in run({"command": ["echo", "[" * 100_000]})


@pytest.mark.parametrize(
    "hostile", ["; id", "$(id)", "`id`", "| id", "&& id", "> /tmp/x", "$HOME", "a\nb", "*"]
)
def test_no_shell_reads_an_argument(hostile: str) -> None:
    assert run({"command": ["echo", hostile]})["stdout"] == f"{hostile}\n"
    assert run({"command": ["echo"], "args": [hostile]})["stdout"] == f"{hostile}\n"
    assert run({"payload": hostile}, {"command": "echo"})["stdout"] == f"{hostile}\n"


def test_a_command_that_is_one_text_is_split_into_words_and_nothing_else() -> None:
    assert run({"command": "echo 'a  b' $HOME; id"})["stdout"] == "a  b $HOME; id\n"


@pytest.mark.parametrize(
    ("settings", "printed"),
    [
        ({"payload": "a b"}, "[['a b'], '']"),
        ({"payload": {"n": 1}}, """[['{"n": 1}'], '']"""),
        ({"payload": "a", "pass_to": "stdin"}, "[[], 'a']"),
        ({"payload": [1, None], "pass_to": "stdin"}, "[[], '[1, null]']"),
        ({"payload": "a", "stdin": "b"}, "[['a'], 'b']"),
        (
            {"args": ["a", 1, True, {"b": 2}], "stdin": {"c": 3}},
            """[['a', '1', 'true', '{"b": 2}'], '{"c": 3}']""",
        ),
        ({}, "[[], '']"),
        ({"payload": None}, "[[], '']"),
    ],
)
def test_data_becomes_arguments_and_input(settings: Json, printed: str) -> None:
    text = "import sys; print([sys.argv[1:], sys.stdin.read()])"

    assert run(python(text, **settings))["stdout"].strip() == printed


@pytest.mark.parametrize(
    ("template", "payload", "rendered"),
    [
        ("{{ raw }}", "a b", "a b"),
        ("{{raw}}-{{ raw }}", 7, "7-7"),
        ("{{ input.user.name }}", {"user": {"name": "ada"}}, "ada"),
        ("{{ input.0 }}", ["x"], "x"),
        ("{{ json.ids.1 }}", '{"ids": [3, 4]}', "4"),
        ("{{ json.ids }}", {"ids": [3, 4]}, "[3, 4]"),
        ("{{ raw }}", "{{ raw }}", "{{ raw }}"),
        ("{ raw }", "x", "{ raw }"),
    ],
)
def test_a_template_takes_parts_of_the_payload(template: str, payload: Any, rendered: str) -> None:
    configuration = {"command": ["echo", template], "pass_to": "template"}

    assert run({"payload": payload}, configuration)["stdout"] == f"{rendered}\n"


@pytest.mark.parametrize(
    ("template", "payload", "said"),
    [
        ("{{ input.user }}", {"usr": 1}, "no 'user' at that place"),
        ("{{ input.3 }}", [1], "no '3' at that place"),
        ("{{ json.a }}", "no json", "no 'a' at that place"),
        ("{{ input.__class__ }}", "x", "no '__class__' at that place"),
        ("{{ raw | upper }}", "x", "is not valid: write"),
        ("{{ cycler.__init__ }}", "x", "is not valid: write"),
        ("{{ raw }}", None, "no payload"),
    ],
)
def test_a_bad_template_is_rejected(template: str, payload: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        run({"payload": payload}, {"command": ["echo", template], "pass_to": "template"})


def test_data_never_selects_the_program() -> None:
    with pytest.raises(Refused, match=r"this worker may not run \{\{ raw \}\}"):
        run({"payload": "sh"}, {"command": ["{{ raw }}"], "pass_to": "template"})
    with pytest.raises(Refused, match="'command' belongs in the configuration"):
        run({"command": ["sh"]}, {"command": ["echo"]})


def test_input_larger_than_a_pipe_arrives_whole() -> None:
    text = "x" * 3_000_000

    output = run(python("import sys; print(len(sys.stdin.read()))", stdin=text))

    assert output["json"] == len(text)


def test_a_program_need_not_read_its_input() -> None:
    assert run({"command": ["echo", "done"], "stdin": "x" * 3_000_000})["stdout"] == "done\n"


def test_bytes_that_are_not_utf8_are_replaced_in_the_output() -> None:
    output = run(python("import sys; sys.stdout.buffer.write(bytes(range(256)))"))

    assert output["stdout"].startswith("\0\x01")
    assert output["stdout"].endswith("\ufffd")
    output["stdout"].encode()


def test_a_hundred_megabytes_are_read_and_not_kept() -> None:
    tracemalloc.start()
    try:
        output = run(python("for _ in range(100): print('x' * 999_999)", max_bytes=1_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert output["cut"] == {"stdout": 100_000_000}
    assert output["stdout"] == "x" * 1_000
    assert peak < 4_000_000


def test_a_program_runs_in_the_folder_of_its_files_or_in_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    where = "import os; print(os.getcwd())"
    assert run(python(where))["stdout"] == "/\n"
    with pytest.raises(Refused, match=ROOT_VARIABLE):
        run(python(where, cwd="a"))
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))

    assert run(python(where, cwd="a/b"))["stdout"] == f"{tmp_path}/a/b\n"
    assert run(python(where, cwd="."))["stdout"] == f"{tmp_path}\n"
    for path in ("..", "/", "a/../.."):
        with pytest.raises(Refused, match="stays below it"):
            run(python(where, cwd=path))


# ---- the allowlist


def test_without_a_list_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(module.COMMANDS_VARIABLE)

    with pytest.raises(
        Refused, match=f"{module.COMMANDS_VARIABLE} is not set; set it to the programs .* such as echo"
    ):
        run({"command": ["echo"]})


@pytest.mark.parametrize(
    ("listed", "command"),
    [
        ("cat", "echo"),
        ("echo", "/bin/echo"),
        ("/bin/echo", "echo"),
        ("/bin/echo", "/bin/../bin/echo"),
        ("/bin/echo", "/bin//echo"),
        ("/bin/*", "/bin/echo"),
        ("ech*", "echo"),
        ("echo", "echo\n"),
        ("echo", "Echo"),
    ],
)
def test_a_program_that_is_not_listed_literally_is_rejected(
    listed: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, listed)

    with pytest.raises(Refused, match=f"add it to {module.COMMANDS_VARIABLE}") as caught:
        run({"command": [command]})
    assert caught.value.non_retryable


@pytest.mark.parametrize("command", ["./echo", "bin/echo", "../bin/echo"])
def test_a_relative_path_is_rejected_whatever_is_listed(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, f"*, {command}")

    with pytest.raises(Refused, match="neither the name of a program nor an absolute path"):
        run({"command": [command]})


def test_a_name_is_not_searched_in_the_path_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("echo", "only-here"):
        (tmp_path / name).write_text("#!/bin/sh\necho from somewhere else\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    allow(monkeypatch, "*")

    assert run({"command": ["echo", "ours"]})["stdout"] == "ours\n"
    with pytest.raises(ProcessFailed, match="there is no program only-here on this worker"):
        run({"command": ["only-here"]})


def test_a_program_that_the_executor_file_can_write_is_never_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "tool").write_text("#!/bin/sh\n")
    (files / "tool").chmod(0o755)
    (tmp_path / "link").symlink_to(files / "tool")
    monkeypatch.setenv(ROOT_VARIABLE, str(files))
    allow(monkeypatch, f"*, {files}/tool, {tmp_path}/link")

    for path in (files / "tool", tmp_path / "link"):
        with pytest.raises(Refused, match="where steps can write"):
            run({"command": [str(path)]})


def test_a_program_that_is_missing_or_cannot_be_run_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("no program")
    allow(monkeypatch, "*")

    with pytest.raises(ProcessFailed, match="/nowhere/tool cannot be run: No such file or directory"):
        run({"command": ["/nowhere/tool"]})
    with pytest.raises(ProcessFailed, match="text cannot be run: Permission denied"):
        run({"command": [f"{tmp_path}/text"]})
    with pytest.raises(ProcessFailed, match="Argument list too long; pass long data by 'stdin'"):
        run({"command": ["echo"], "args": ["x" * 200_000]})


# ---- the environment


def test_the_environment_has_only_the_named_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_REGION", "eu")
    monkeypatch.setenv("SHOP_TOKEN", "secret")
    monkeypatch.setenv(ENV_VARIABLES, "SHOP_*, LANG")

    assert run({"command": ["env"]})["stdout"] == "PATH=/usr/local/bin:/usr/bin:/bin\n"
    named = run(
        {
            "command": ["env"],
            "environment": {"LANG": "C.UTF-8", "SHOP_SIZE": 3},
            "pass_environment": ["SHOP_REGION", "SHOP_UNSET"],
        }
    )
    assert sorted(named["stdout"].split()) == [
        "LANG=C.UTF-8",
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "SHOP_REGION=eu",
        "SHOP_SIZE=3",
    ]


@pytest.mark.parametrize("settings", [{"environment": {"LANG": "x"}}, {"pass_environment": ["LANG"]}])
def test_a_variable_that_the_worker_does_not_allow_is_rejected(
    settings: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Refused, match=f"'LANG' is not allowed: {ENV_VARIABLES} of this worker is not set"):
        run({"command": ["env"], **settings})
    monkeypatch.setenv(ENV_VARIABLES, "lang, LAN")
    with pytest.raises(
        Refused, match=f"'LANG' is not allowed: {ENV_VARIABLES} of this worker does not list it"
    ):
        run({"command": ["env"], **settings})


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PATH", "GCONV_PATH", "A=B", "", "Ä"]
)
def test_a_variable_that_changes_which_code_is_run_is_always_rejected(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENV_VARIABLES, "*")

    with pytest.raises(Refused, match="could change which code is run"):
        run({"command": ["env"], "environment": {name: "/tmp/evil.so"}})


# ---- settings


@pytest.mark.parametrize(
    ("inputs", "configuration", "said"),
    [
        ({"comand": ["echo"]}, {}, "the input has an unknown setting 'comand'; did you mean 'command'"),
        (
            {},
            {"command": "echo", "timeot": 1},
            "the configuration has an unknown setting 'timeot'; .*'timeout'",
        ),
        ({}, {"command": "echo", "payload": 1}, "the configuration has an unknown setting 'payload'"),
        ({"timeout": 3}, {"command": "echo"}, "'timeout' belongs in the configuration"),
        ({"timeout": 3, "command": "echo"}, {"timeout": 1}, "'timeout' is fixed by the configuration"),
        ({"environment": {}}, {"command": "echo"}, "'environment' belongs in the configuration"),
        ({}, {}, "'command' must be a list of strings"),
        ({"command": []}, {}, "must name a program"),
        ({"command": [""]}, {}, "must name a program"),
        ({"command": ["echo", 1]}, {}, "'command' must be a list of strings"),
        ({"command": "echo 'a"}, {}, "cannot be split into words"),
        ({"command": "echo", "args": "a"}, {}, "'args' must be a list"),
        ({"command": "echo", "args": ["a\0b"]}, {}, "contains a zero byte"),
        ({"command": "echo", "args": ["\ud800"]}, {}, "cannot be|that can be encoded"),
        ({"command": "echo", "stdin": "\ud800"}, {}, "'stdin' has half a character"),
        (
            {"command": "echo", "stdin": 1, "payload": 2, "pass_to": "stdin"},
            {},
            "cannot be combined with a 'payload'",
        ),
        ({"command": "echo", "pass_to": "shell"}, {}, "'pass_to' must be one of arg, stdin, template"),
        ({"command": "echo", "timeout": -1}, {}, "'timeout' must be a number"),
        ({"command": "echo", "timeout": True}, {}, "'timeout' must be a number"),
        ({"command": "echo", "max_bytes": "1"}, {}, "'max_bytes' must be a number"),
        ({"command": "echo", "exit_codes": []}, {}, "'exit_codes' must be a list of numbers"),
        ({"command": "echo", "exit_codes": [True]}, {}, "'exit_codes' must be a list of numbers"),
        ({"command": "echo", "environment": []}, {}, "'environment' must be a mapping"),
        ({"command": "echo", "pass_environment": "A"}, {}, "'pass_environment' must be a list of strings"),
        ({"command": "echo", "redact_args": 1}, {}, "'redact_args' must be a list of numbers"),
        ({"command": "echo", "redact_patterns": [1]}, {}, "'redact_patterns' must be a list of strings"),
    ],
)
def test_wrong_settings_are_rejected_by_name(inputs: Json, configuration: Json, said: str) -> None:
    with pytest.raises(Refused, match=said):
        run(inputs, configuration)


# ---- results


def test_a_bad_exit_code_is_a_failure_with_the_end_of_stderr() -> None:
    text = "import sys; print('x' * 9_000, 'the disk is full', file=sys.stderr); sys.exit(3)"

    with pytest.raises(ProcessFailed, match=r"ended with exit code 3: x+ the disk is full$") as caught:
        run(python(text))
    assert len(str(caught.value)) < 1_200
    assert not hasattr(caught.value, "non_retryable")
    assert run(python(text, exit_codes=[0, 3]))["returncode"] == 3
    with pytest.raises(ProcessFailed, match="exit code 0"):
        run({"command": ["echo"], "exit_codes": [3]})


def test_a_signal_is_reported_by_name() -> None:
    with pytest.raises(ProcessFailed, match=r"was killed by SIGKILL$"):
        run({"command": ["sh", "-c", "kill -9 $$"]})
    with pytest.raises(ProcessFailed, match=r"was killed by signal 40$"):
        run({"command": ["sh", "-c", "kill -40 $$"]})


def test_signals_that_python_ignores_are_not_ignored_by_a_program() -> None:
    output = run({"command": ["sh", "-c", "grep SigIgn /proc/self/status"]})

    name, ignored = output["stdout"].split()
    assert name == "SigIgn:"
    assert not [one for one in (signal.SIGPIPE, signal.SIGXFSZ) if int(ignored, 16) >> (one - 1) & 1]


def test_arguments_are_not_shown_unless_configured() -> None:
    said: list[str] = []
    text = "import sys; sys.exit(' '.join(sys.argv[1:]))"
    command = ["echo", "--user", "ada", "key=s3cret", "tok123"]

    run({"command": command}, log=said.append)
    run({"command": command, "log_full_command": True}, log=said.append)
    run({"command": command, "redact_args": [4], "redact_patterns": ["key="]}, log=said.append)

    assert said == [
        "running echo <4 arguments>",
        "running echo --user ada key=s3cret tok123",
        "running echo --user ada <redacted> <redacted>",
    ]
    with pytest.raises(ProcessFailed) as caught:
        run(python(text, "ada", "key=s3cret", redact_patterns=["key="]))
    assert str(caught.value).endswith(": ada <redacted>")


def test_any_output_of_a_program_is_a_heartbeat() -> None:
    beats: list[int] = []

    run({"command": ["echo", "x"]}, heartbeat=lambda: beats.append(1))
    assert beats
    beats.clear()
    run({"command": ["sh", "-c", ":"]}, heartbeat=lambda: beats.append(1))
    assert not beats


# ---- no process is left behind


def test_nothing_is_left_of_a_program_that_has_ended(tmp_path: Path) -> None:
    output = run(python(FAMILY, str(tmp_path / "pids"), timeout=600))

    assert output["stdout"] == "begun\n"
    pids = noted(tmp_path / "pids")
    assert len(pids) == 5
    assert not [pid for pid in pids if is_running(pid)]


def test_nothing_is_left_of_a_program_that_is_too_slow(tmp_path: Path) -> None:
    slow = FAMILY + "time.sleep(600)"

    with pytest.raises(ProcessFailed, match=r"did not end within 0\.5 s, and was killed with all"):
        run(python(slow, str(tmp_path / "pids"), timeout=0.5))
    assert not [pid for pid in noted(tmp_path / "pids") if is_running(pid)]


def test_nothing_is_left_of_a_program_whose_step_is_cancelled(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    with pytest.raises(ProcessFailed, match="did not end, and was killed with all"):
        run(python(FAMILY + "time.sleep(600)", str(pids)), cancelled=lambda: len(noted(pids)) == 5)
    assert len(noted(pids)) == 5
    assert not [pid for pid in noted(pids) if is_running(pid)]


def test_nothing_is_left_when_the_executor_is_interrupted(tmp_path: Path) -> None:
    """Like the exception that RQ raises in a work-horse at the timeout."""
    pids = tmp_path / "pids"

    class TimeIsOver(BaseException):
        pass

    def cancelled() -> bool:
        if len(noted(pids)) == 5:
            raise TimeIsOver
        return False

    with pytest.raises(TimeIsOver):
        run(python(FAMILY + "time.sleep(600)", str(pids)), cancelled=cancelled)
    assert not [pid for pid in noted(pids) if is_running(pid)]


def test_a_program_that_forks_faster_than_its_processes_end_is_killed_too(tmp_path: Path) -> None:
    breeding = """
import os, signal, sys
for n in range(300):
    if os.fork():
        os._exit(0)
    os.setsid()
    with open(sys.argv[1], "w") as pid:
        pid.write(str(os.getpid()))
signal.pause()
"""
    run(python(breeding, str(tmp_path / "pid"), timeout=600))

    assert not [pid for pid in noted(tmp_path / "pid") if is_running(pid)]


HORSE = f"""
import os, sys, threading, time
sys.path.insert(0, {str(ROOT / "executors")!r})
from orchestrator_executors.process import process
if "forks" in sys.argv:
    def fork():
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        if os.fork() == 0:
            open(sys.argv[1] + ".forked", "w").close()
            threading.Event().wait()
    threading.Thread(target=fork, daemon=True).start()
process({{"command": [sys.executable, "-c", {FAMILY + "time.sleep(600)"!r}, sys.argv[1]]}}, {{}},
        lambda: None, lambda text: None, lambda: False)
"""


@pytest.mark.parametrize("how", ["alone", "forks"])
def test_nothing_is_left_when_the_process_of_the_executor_is_killed(how: str, tmp_path: Path) -> None:
    """Even if it has forked a process by then, which has the same open files."""
    pids = tmp_path / "pids"
    horse = subprocess.Popen([PYTHON, "-c", HORSE, str(pids), how], start_new_session=True)
    try:
        wait_until(lambda: len(noted(pids)) == 5, what="the processes to start")
        if how == "forks":
            wait_until((tmp_path / "pids.forked").exists, what="the fork")
        horse.kill()
        horse.wait()

        wait_until(lambda: not [pid for pid in noted(pids) if is_running(pid)], what="the processes to end")
    finally:
        with suppress(ProcessLookupError):  # there may be no process of its group left
            os.killpg(horse.pid, signal.SIGKILL)
        horse.wait()


def test_a_program_dies_with_its_guard(tmp_path: Path) -> None:
    text = """
import os, signal, sys, time
with open(sys.argv[1], "w") as pid:
    pid.write(str(os.getpid()))
os.kill(os.getppid(), signal.SIGKILL)
time.sleep(600)
"""
    with pytest.raises(ProcessFailed, match="did not end, and was killed"):
        run(python(text, str(tmp_path / "pid")))

    [pid] = noted(tmp_path / "pid")
    wait_until(lambda: not is_running(pid))


def test_a_guard_that_its_program_stops_is_killed_and_the_program_with_it(tmp_path: Path) -> None:
    text = """
import os, signal, sys, time
os.kill(os.getppid(), signal.SIGSTOP)
with open(sys.argv[1], "w") as pid:
    pid.write(str(os.getpid()))
time.sleep(600)
"""
    pid = tmp_path / "pid"

    with pytest.raises(ProcessFailed, match="did not end, and was killed"):
        run(python(text, str(pid)), cancelled=lambda: bool(noted(pid)))

    wait_until(lambda: not is_running(*noted(pid)))


def test_many_threads_run_programs_at_once_and_do_not_change_their_process() -> None:
    before = (os.getcwd(), [signal.getsignal(number) for number in signal.valid_signals()], open_files())
    together = threading.Barrier(8)

    def one(n: int) -> str:
        together.wait()
        return str(run({"command": ["cat"], "stdin": f"{n}" * 100_000})["stdout"])

    with ThreadPoolExecutor(8) as threads:
        printed = list(threads.map(one, range(8)))

    assert printed == [f"{n}" * 100_000 for n in range(8)]
    after = (os.getcwd(), [signal.getsignal(number) for number in signal.valid_signals()], open_files())
    assert after == before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_guard_imports_no_other_module_of_the_package() -> None:
    text = GUARD_SCRIPT.read_text()

    assert "from ." not in text
    assert "executors" not in text.partition('"""')[2].partition('"""')[2]
