"""Run the command line as `python -m dsl`."""

from dsl.cli.main import main

raise SystemExit(main())
