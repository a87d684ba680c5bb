"""What the code blocks of the pages tell a reader to type is typed here, at a smaller scale."""

from __future__ import annotations

import io
import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from dsl.cli.main import VERBS, main, usage
from dsl.families.table import FAMILIES
from tests.llamas import small_teacher

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXTENDING = ROOT / "docs/extending.md"
FRONT = PAGES[0]
TYPED = [FRONT, *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[1:])]
"""The front door is tried with every test; the other pages, which take minutes, with the slow."""
TUNED = "dsl train text8-tiny-finetune --init runs/mdlm-dsl"
SMALLER = {
    r"^dsl data moses": "dsl data benzenes",
    r" --judge moses": " --reference benzenes",
    r"^torchrun --nproc-per-node \d+ -m ": "",
    r"^dsl compare stories-tiny(.*) stories-15000": r"dsl compare stories-tiny\1 stories.jsonl "
    "--length 32",
    r"(?<= )stories(-15000)?(?= |$)": "stories-40",
    r"\b(text8-prefix|english)\b(?!-)": "python-docs",
    rf"^{TUNED}": f"{TUNED} --set trainer.batch=2 --set trainer.steps=2 --set data.validation=2 "
    "--set data.corpus=python-docs",
    rf"^(?!{TUNED})dsl train (\S+)(?!\S| --smoke)": r"dsl train \1 --smoke",
    r" --init (mdlm-owt|runs/start(-dsl)?|runs/english-(start|masked))(?= |$)": "",
    r" --set data\.corpus=stories-\d+": "",
    r"\btrainer\.steps=\d+": "trainer.steps=2",
    r"\bSOURCE OUT\b": "runs/mdlm/model OUT",
    r"(?<=^dsl sample )-n \d\d\d+": "-n 24",
    r"(?<=@)1024": "8",
    r"(?<=^dsl sample -n 4 --sampler remdm-loop@)\d+": "8",
    r"(?<=--limit )\d\d\d+": "4",
    r"(?<=--budget )\d\d+": "16",
    r"^dsl (evaluate|compare) (.*)": r"dsl \1 \2 --features none --judge none",
    r"(?<=--length )128": "16",
    r"(?<=--steps )8 16( 32)?( 64)?( 128)?": "1 2",
    r"^dsl compare (.*)": r"dsl compare \1 -n 4 --seeds-drawn 2",
}
"""What is changed so that no network, no judge, one process and few seconds are enough."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def files_of(page: Path) -> dict[str, str]:
    """The blocks of a page that are files: their first line is a name."""
    named = {re.match(r"# (\w+\.py)\n", block): block for block in blocks(page, "python")}
    return {name[1]: block for name, block in named.items() if name}


def typed_blocks(page: Path) -> list[str]:
    return [block for block in blocks(page, "python") if block not in files_of(page).values()]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory to work in, with a cache of its own and some texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSL_CACHE", str(tmp_path / "cache"))
    small_teacher(tmp_path / "cache")
    Path("mine.txt").write_text("it was the best of times it was the worst of times " * 200)
    Path("lines.txt").write_text("the cat sat on\nthe capital of england\n")
    stories = [
        f"Once there were {n} cats in the garden, and they slept all day." for n in range(240)
    ]
    Path("stories.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in stories))
    damaged = "The govemment of the United Stetes was formed in the eigtheenth centuty."
    Path("page.txt").write_text(damaged)
    read = [{"word": word, "conf": 0.9} for word in damaged.split()]
    Path("words.json").write_text(json.dumps(read))
    Path("page.json").write_text(json.dumps(read * 5))
    Path("page.true.txt").write_text(" ".join([damaged] * 5))
    Path("gaps.txt").write_text("The cat [1] on the mat.\nTom went to the [2] with his dad.\n")
    return tmp_path


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, so that names registered there stay there."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_says_what_it_is(page: Path) -> None:
    """So that none is passed over below."""
    opened = re.findall(r"^ *```(.*)$", page.read_text(), flags=re.MULTILINE)[::2]
    assert set(opened) <= {"bash", "python"}


def test_there_is_something_to_type() -> None:
    typed = sum(len("".join(blocks(page, "bash")).splitlines()) for page in PAGES)
    assert typed > 30
    assert sum(len(typed_blocks(page)) for page in PAGES) > 5
    assert len(files_of(EXTENDING)) == 3
    assert EXAMPLES


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if not files_of(p)], ids=lambda p: p.stem)
def test_python_blocks_run(page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    namespace: dict[str, object] = {}
    for block in typed_blocks(page):
        exec(compile(block, page.name, "exec"), namespace)
        assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if files_of(p)], ids=lambda p: p.stem)
def test_python_blocks_run_with_the_files_of_their_page(page: Path, elsewhere: Path) -> None:
    for name, text in files_of(page).items():
        Path(name).write_text(text)
    parts = typed_blocks(page)
    Path("typed.py").write_text("\nprint('* * *')\n".join(parts))
    done = python("typed.py")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("* * *\n")
    assert len(printed) == len(parts)
    assert all(printed)


def test_the_sampler_of_the_page_is_exact_one_token_at_a_time(elsewhere: Path) -> None:
    """With as many steps as tokens nothing is decided in parallel, so the oracle's law holds."""
    Path("easiest_first.py").write_text(files_of(EXTENDING)["easiest_first.py"])
    words = ["sample", "-n", "40", "--model", "oracle:cyclic-7", "--sampler", "easiest-first@7"]
    texts = python("easiest_first.py", *words).stdout.split()
    assert len(texts) == 40
    assert {text for text in texts if text not in "ABCDEFGABCDEFG"} == set()
    assert len(set(texts)) > 3


ADDED = {
    "easiest_first.py": (
        "sample --model oracle:cyclic-7 --sampler easiest-first@7",
        "unknown sampler 'easiest-first'",
    ),
    "unigram.py": (
        "train cyclic --smoke --set objective=unigram --out run",
        f"objective must be one of {', '.join(FAMILIES)}; got 'unigram'",
    ),
    "sums.py": ("data sums", "unknown corpus 'sums'"),
}
"""A command that takes the new name of each file, and what it is answered without the name."""


@pytest.mark.slow
@pytest.mark.parametrize("file", ADDED)
def test_one_file_and_one_line_of_it_add_a_name(file: str, elsewhere: Path) -> None:
    text = files_of(EXTENDING)[file]
    without, lines = re.subn(r"^register\(.*\n", "", text, flags=re.MULTILINE)
    assert lines == 1
    command, refusal = ADDED[file]
    Path(file).write_text(without)
    refused = python(file, *command.split())
    assert refused.returncode == 1
    assert refusal in refused.stderr
    Path(file).write_text(text)
    done = python(file, *command.split())
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.timeout(1800)  # the page on evaluation takes two minutes alone
@pytest.mark.parametrize("page", TYPED, ids=lambda page: page.stem)
def test_commands_run(page: Path, capsys: pytest.CaptureFixture[str], elsewhere: Path) -> None:
    for name, text in files_of(page).items():
        Path(name).write_text(text)
    for line in "".join(blocks(page, "bash")).replace("\\\n", " ").splitlines():
        command = shlex.join(shlex.split(line, comments=True))
        file = re.match(r"python (\w+\.py) ", command)
        if file and file[1] in files_of(page):
            command = command.replace(file[0], "dsl ", 1)
        for pattern, smaller in SMALLER.items():
            command = re.sub(pattern, smaller, command)
        if not command.startswith("dsl "):
            assert_known(command)
            continue
        words = shlex.split(command)[1:]
        if file:
            done = python(file[1], *words)
            status, out, err = done.returncode, done.stdout, done.stderr
        else:
            status = main(words)
            out, err = capsys.readouterr()
        if status and "It comes with the" in err:
            pytest.skip(err.strip())
        assert status == 0, f"{line}\n{err}"
        assert out or err, line


def assert_known(command: str) -> None:
    """Whatever else is typed is a target of the Makefile, or enters the environment."""
    if command.startswith("make "):
        assert f"\n{command.split()[1]}:" in (ROOT / "Makefile").read_text(), command
    elif match := re.match(r"(?:\.venv/bin/)?python -m (tools\.\w+)", command):
        assert (ROOT / f"{match[1].replace('.', '/')}.py").is_file(), command
    else:
        assert command.startswith(("pip install ", "source ", "git clone ", "cd ")), command


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_examples_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    assert EXPECTED[script.stem] in printed


EXPECTED = {
    "doubtful_text": " The president of the United ",
    "paths_through_one_space": " 0.6   2.5   5.6  10.0  15.6  22.5  30.6  40.0 100.0",
    "which_is_likelier": " bits per letter  he lived in the city of london",
}
"""A line that each example prints."""


def quoted(page: Path) -> Iterator[str]:
    """What a page's text puts between single backticks, code blocks left out."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    yield from re.findall(r"`([^`\n]+)`", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_page_names_exist(page: Path) -> None:
    """Paths are relative to the repository, to src/dsl or to tests."""
    named = {n for n in quoted(page) if re.fullmatch(r"[\w./-]+(\.(py|yaml|txt)|/)", n)}
    written = {"model/", "site/", "page.txt", "FILE.py", *files_of(page)}
    homes = (ROOT, ROOT / "src/dsl", ROOT / "tests")
    missing = {n for n in named - written if not any((home / n).exists() for home in homes)}
    assert missing == set()
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert {link for link in linked if not (page.parent / link).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_sections_that_a_page_links_to_exist(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]*)\)", page.read_text())
    for file, section in links:
        text = (page.parent / file if file else page).read_text()
        titles = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
        assert section in {re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles}


def test_what_the_map_of_the_paper_names_exists() -> None:
    """Every file, function and test of docs/concepts.md, so that a reader finds them."""
    names = set(quoted(ROOT / "docs/concepts.md"))
    tests = {name for name in names if "::" in name}
    code = {name for name in names if re.fullmatch(r"[a-z_]+(\.[A-Za-z_]+)+", name)}
    code = {name for name in code if not name.endswith((".py", ".jsonl", ".yaml"))}
    assert len(tests) > 10
    assert len(code) > 20
    for name in tests:
        file, test = name.split("::")
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(), name
    for name in code:
        assert found(name), name


def found(name: str) -> bool:
    """Whether `module.function` or `package.module.Class` is in dsl."""
    value: object = import_module("dsl")
    for part in name.removeprefix("dsl.").split("."):
        if hasattr(value, part):
            value = getattr(value, part)
        elif hasattr(value, "__path__") and find_spec(f"{value.__name__}.{part}"):
            value = import_module(f"{value.__name__}.{part}")
        else:
            return False
    return True


def test_every_module_has_its_place_in_the_map() -> None:
    """The table of the tree names every file and folder of the package."""
    text = (ROOT / "docs/concepts.md").read_text()
    homes = [path for path in (ROOT / "src/dsl").iterdir() if not path.name.startswith("_")]
    names = {f"{path.name}/" if path.is_dir() else path.name for path in homes}
    assert {name for name in names - {"py.typed"} if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_that_a_page_names_exist(page: Path, options: set[str]) -> None:
    assert set(re.findall(OPTION, page.read_text())) <= options


OPTION = r"(?<![\w-])--[a-z][a-z0-9-]*"


@pytest.fixture(scope="module")
def options() -> set[str]:
    """What the help of any verb, or the source of the mutation script, names."""
    shown = io.StringIO()
    for verb in VERBS:
        with redirect_stdout(shown), suppress(SystemExit):
            main([verb, "--help"])
    texts = shown.getvalue() + usage() + (ROOT / "tools/mutate.py").read_text()
    return {*re.findall(OPTION, texts), "--nproc-per-node", "--strict"}  # torchrun's and mypy's
