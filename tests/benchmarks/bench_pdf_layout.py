"""Tables and reading order of PDF pages: cell F1, order, seconds a page, words lost.

`python -m tests.benchmarks.bench_pdf_layout [--seed N] [--each N] [--real FOLDER] [--liteparse PYTHON] [--show KIND]`
needs `python -m pip install reportlab==5.1.0` for the generated pages (pdf_pages.py). Real pages stand in
pdf_truth.json with their tables, written down from their pictures: of `$RAGD_DATA/messy`, and of Debian packages that
hold PDF, each unpacked (`dpkg-deb -x`) below --real in a folder of its name. The parameters were chosen with --seed 0
and on the pages marked chosen_on; what is to be reported is another seed and the other pages. --liteparse names the
Python of an environment that has liteparse 2.18 (34 MB), read beside ours.

Cell F1: rows of the table found and of the true one are brought in line so that most cells agree; a cell agrees when
its words are the same and its column has the same number, empty rows and columns left out. 2 * agreeing / (cells
found + true cells), empty ones not counted; cells of a table where there is none count as found. Order: the share of
the pairs of neighbouring words, in the true order, that are neighbours in the text too; on real pages of the pairs of
named phrases that come in their order. "pdfium" is the text in pdfium's own order.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path

import pypdfium2 as pdfium

from collections_app.parsing.pdf.glyphs import clean
from collections_app.parsing.pdf.layout import lay_out

ROOT = Path(__file__).resolve().parent.parent.parent
TRUTH = Path(__file__).with_name("pdf_truth.json")
BARRED = re.compile(r"^\|.*\|$")
BELOW_HEAD = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$")
BAR = re.compile(r"(?<!\\)\|")
WORD = re.compile(r"[^\s|\\]+")
LITEPARSE = """
import json, sys
from liteparse import LiteParse
import time
for line in sys.stdin:
    path, page = json.loads(line)
    began = time.process_time()
    try:
        parser = LiteParse(output_format="markdown", ocr_enabled=False, quiet=True, target_pages=str(page + 1))
        found = [each for each in parser.parse(path).pages if each.page_num == page + 1]
        text = found[0].markdown or "" if found else ""
    except Exception as error:
        text = f"({error})"
    print(json.dumps([text, time.process_time() - began]), flush=True)
"""

Grid = list[list[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """A page with what is known of it. tables: None: not looked at. phrases: in reading order, of real pages."""

    kind: str
    path: Path
    page: int
    tables: list[Grid] | None
    order: list[str]
    phrases: list[str]


def tables_of(text: str) -> list[Grid]:
    """The Markdown tables of a text, their cells as they read."""
    result: list[Grid] = []
    open_table = False
    for line in text.split("\n"):
        line = line.strip()
        if not BARRED.match(line):
            open_table = False
            continue
        if BELOW_HEAD.match(line):
            continue
        if not open_table:
            result.append([])
            open_table = True
        cells = [" ".join(cell.replace("\\|", "|").replace("<br>", " ").split()) for cell in BAR.split(line)[1:-1]]
        result[-1].append(cells)
    return result


def pack(grid: Grid) -> Grid:
    """Without empty rows and columns, each row as long as the longest."""
    width = max((len(row) for row in grid), default=0)
    full = [[" ".join(cell.split()) for cell in row] + [""] * (width - len(row)) for row in grid]
    used = [index for index in range(width) if any(row[index] for row in full)]
    return [[row[index] for index in used] for row in full if any(row)]


def agreeing(found: Grid, true: Grid) -> int:
    """The most cells that agree when rows are brought in line."""
    best = [0] * (len(true) + 1)
    for row in found:
        before = best[:]
        for index, other in enumerate(true, 1):
            same = sum(1 for a, b in zip(row, other, strict=False) if a and a == b)
            best[index] = max(before[index], best[index - 1], before[index - 1] + same)
    return best[-1]


def cells(grids: Sequence[Grid]) -> int:
    return sum(1 for grid in grids for row in grid for cell in row if cell)


def cell_f1(text: str, tables: Sequence[Grid]) -> tuple[int, int, int]:
    """Cells that agree, that were found, that are true."""
    found, true = [pack(grid) for grid in tables_of(text)], [pack(grid) for grid in tables]
    pairs = sorted(
        ((agreeing(one, other), i, j) for i, one in enumerate(found) for j, other in enumerate(true)), reverse=True
    )
    seen: tuple[set[int], set[int]] = (set(), set())
    total = 0
    for count, i, j in pairs:
        if i not in seen[0] and j not in seen[1]:
            seen[0].add(i)
            seen[1].add(j)
            total += count
    return total, cells(found), cells(true)


def order_share(text: str, case: Case) -> float:
    """The share of what is in its true order; of phrases, those that the text does not hold count as out of order."""
    if case.phrases:
        plain = " ".join(WORD.findall(text))
        places = [plain.find(phrase) for phrase in case.phrases]
        pairs = list(combinations(places, 2))
        return sum(1 for one, other in pairs if 0 <= one < other) / len(pairs)
    true, found = Counter(pairwise(case.order)), Counter(pairwise(WORD.findall(text)))
    return (true & found).total() / true.total()


def read_ours(case: Case) -> tuple[str, float]:
    return _timed(case, lambda page, text_page: lay_out(page, text_page, 1)[0])


def read_pdfium(case: Case) -> tuple[str, float]:
    return _timed(case, lambda page, text_page: clean(text_page.get_text_range()).replace("\r\n", "\n"))


def _timed(case: Case, read: object) -> tuple[str, float]:
    document = pdfium.PdfDocument(case.path)
    try:
        began = time.process_time()
        page = document[case.page]
        text_page = page.get_textpage()
        text = read(page, text_page)  # type: ignore[operator]
        took = time.process_time() - began
        text_page.close()
        page.close()
        return text, took
    finally:
        document.close()


class Liteparse:
    """liteparse in an environment of its own, page after page."""

    def __init__(self, python: str) -> None:
        self.process = subprocess.Popen(
            [python, "-c", LITEPARSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, case: Case) -> tuple[str, float]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([str(case.path), case.page]) + "\n")
        self.process.stdin.flush()
        text, took = json.loads(self.process.stdout.readline())
        return text, took


def generated(seed: int, each: int, folder: Path) -> list[Case]:
    from tests.benchmarks.pdf_pages import column_pages, table_pages  # needs reportlab

    cases = []
    for number, page in enumerate([*table_pages(seed, each), *column_pages(seed, each)]):
        path = folder / f"{number:03} {page.kind}.pdf"
        path.write_bytes(page.data)
        cases.append(Case(page.kind, path, 0, page.tables, page.order, []))
    return cases


def real(folder: Path | None) -> list[Case]:
    """The pages of pdf_truth.json whose files are there."""
    data = Path(os.environ.get("RAGD_DATA", ROOT.parent / "shared" / "data"))
    result = []
    for entry in json.loads(TRUTH.read_text(encoding="utf-8")) if TRUTH.is_file() else []:
        bases = [base for base in (data, folder) if base is not None]
        path = next((base / entry["file"] for base in bases if (base / entry["file"]).is_file()), None)
        if path is None:
            print(f"left out, not there: {entry['file']}")
            continue
        kind = f"{'known' if entry.get('chosen_on') else 'unseen'} {path.stem} {entry['page'] + 1}"
        result.append(Case(kind, path, entry["page"], entry.get("tables"), [], entry.get("phrases", [])))
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--each", type=int, default=2, help="pages of each kind")
    parser.add_argument("--real", type=Path, help="a folder with the unpacked Debian packages")
    parser.add_argument("--liteparse", help="the Python of an environment with liteparse")
    parser.add_argument("--show", help="print what was read of the pages of one kind")
    parser.add_argument("--folder", type=Path, default=Path("var/pdf_layout"), help="for the generated pages")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        cases = generated(options.seed, options.each, options.folder)
    except ImportError:
        print("No generated pages: python -m pip install reportlab==5.1.0")
        cases = []
    cases += real(options.real)
    readers = {"pdfium": read_pdfium, "ours": read_ours}
    if options.liteparse:
        readers["liteparse"] = Liteparse(options.liteparse)
    if options.show:
        for case in cases:
            if options.show in case.kind:
                for name, reader in readers.items():
                    print(f"--- {case.kind} {name} {cell_f1(reader(case)[0], case.tables or [])}\n{reader(case)[0]}")
        return 0
    report(cases, readers)
    return 0


def report(cases: Sequence[Case], readers: dict[str, object]) -> None:
    scores: dict[str, dict[str, list[tuple[int, int, int]]]] = {name: defaultdict(list) for name in readers}
    orders: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in readers}
    seconds: dict[str, list[float]] = defaultdict(list)
    lost: Counter[str] = Counter()
    for case in cases:
        truth: Counter[str] = Counter()
        for name, reader in readers.items():
            text, took = min((reader(case) for _ in range(3)), key=lambda each: each[1])  # type: ignore[operator]
            seconds[name].append(took)
            words = Counter("".join(WORD.findall(text.replace("---", ""))))
            truth = truth or words
            lost[name] += (truth - words).total()
            if case.tables is not None:
                scores[name][case.kind].append(cell_f1(text, case.tables))
            if case.order or case.phrases:
                orders[name][case.kind].append(order_share(text, case))
    width = max(len(case.kind) for case in cases)
    print(f"{'cell F1':{width}}  tables  " + "  ".join(f"{name:>9}" for name in readers))
    groups: dict[str, list[str]] = {"all generated": [], "all real, chosen on": [], "all real, unseen": []}
    for kind in dict.fromkeys(case.kind for case in cases):
        found = {"known": "all real, chosen on", "unseen": "all real, unseen"}.get(kind.split()[0], "all generated")
        groups[found].append(kind)
        tables = sum(len(case.tables or []) for case in cases if case.kind == kind)
        if scores["ours"][kind]:
            row = [_f1(scores[name][kind]) for name in readers]
            print(f"{kind:{width}}  {tables:>6}  " + "  ".join(f"{each:9.3f}" for each in row))
    for group, kinds in groups.items():
        tables = sum(len(case.tables or []) for case in cases if case.kind in kinds)
        if tables:
            row = [_f1([each for kind in kinds for each in scores[name][kind]]) for name in readers]
            print(f"{group:{width}}  {tables:>6}  " + "  ".join(f"{each:9.3f}" for each in row))
    print(f"\n{'order':{width}}   pages  " + "  ".join(f"{name:>9}" for name in readers))
    for group, kinds in [*((kind, [kind]) for found in groups.values() for kind in found), *groups.items()]:
        pages = sum(len(orders["ours"][kind]) for kind in kinds)
        if pages:
            row = [sum(sum(orders[name][kind]) for kind in kinds) / pages for name in readers]
            print(f"{group:{width}}  {pages:>6}  " + "  ".join(f"{each:9.3f}" for each in row))
    print()
    for name in readers:
        took = sorted(seconds[name])
        print(
            f"{name}: {1000 * sum(took) / len(took):.1f} ms of CPU a page, at most {1000 * took[-1]:.1f};"
            f" characters of pdfium's text lost: {lost[name]}"
        )


def _f1(counts: Sequence[tuple[int, int, int]]) -> float:
    agree, found, true = (sum(each) for each in zip(*counts, strict=True))
    return 2 * agree / (found + true) if found + true else 1.0


if __name__ == "__main__":
    sys.exit(main())
