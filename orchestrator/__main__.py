"""python -m orchestrator: the same as the command `orchestrator`."""

from orchestrator.cli import main

if __name__ == "__main__":
    main(prog_name="orchestrator")
