"""`manage.py ragd evaluate`: a golden set asked and scored in this process, for people and for build servers."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from pathlib import Path

from collections_app.collections.services import get_collection
from collections_app.commands.progress import Bar, StoppedError
from collections_app.commands.subcommand import Answer, Options, Subcommand, UsageError, as_usage, split_pair
from collections_app.errors import ServiceError
from collections_app.http.downloads import Reading
from evaluation_app.golden.sets import find_set
from evaluation_app.measures.catalogue import find
from evaluation_app.models import EvaluationItem, EvaluationRun, GoldenSet
from evaluation_app.reviews.agreement import anchored_score
from evaluation_app.reviews.labels import MEASURES as LABELLED
from evaluation_app.runs import lifecycle
from evaluation_app.runs.api import ChangeOut, ConclusionOut
from evaluation_app.runs.comparison.changes import MeasureChange
from evaluation_app.runs.comparison.stored_comparisons import RunDifference, RunVerdict, check_comparable, compare_runs
from evaluation_app.runs.lifecycle import RunRequest
from evaluation_app.runs.reports import Finding, junit_xml, run_lines
from evaluation_app.runs.requests import find_run, make_baseline, read_settings
from evaluation_app.runs.schemas import EvaluationRunOut
from evaluation_app.runs.summaries import misses_of
from evaluation_app.scoring.judge_selection import CUT, JUDGES, clear_stored
from ragd.errors import InvalidInput
from retrieval_app.commands import add_plan_arguments, read_plan, read_time

SETTINGS = ("judge", "judge_model", "cut", "unit", "downstream", "llm_model", "as_of")
OF_THE_SET = "set"
REGRESSIONS = "regressions"
ANCHORED = "anchored:"


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("golden_set", nargs="?", metavar="SET", help="the golden set's name")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run that stopped, instead of a new one")
    parser.add_argument("--retry-failed", metavar="RUN", help="ask only what failed in a run again")
    parser.add_argument("--name", default="", help="a name for the run")
    add_plan_arguments(parser)
    measured = parser.add_argument_group("metrics")
    measured.add_argument("--search-only", action="store_true", help="search the questions, answer none")
    measured.add_argument("--judge", choices=JUDGES, help="who judges answers; embedded when left out")
    measured.add_argument(
        "--judge-model", help="another model for --judge llm; for panel its judges with commas between"
    )
    measured.add_argument(
        "--forget-judgements",
        action="store_true",
        help="forget what chat models said as judges before, or --judge-model alone, so that they are asked again",
    )
    measured.add_argument("--cut", type=int, help=f"the k of precision@k and its kin; {CUT} when left out")
    measured.add_argument("--unit", choices=("tokens", "sentences"), help="of lengths in TRACe; tokens when left out")
    measured.add_argument("--contributions", action="store_true", help="answer from each retrieved document alone too")
    measured.add_argument("--downstream", help="by which measure such an answer is labelled; f1 when left out")
    measured.add_argument("--llm-model", default=None, help="chat model, when an endpoint is set")
    measured.add_argument(
        "--as-of",
        type=lambda text: read_time(text).isoformat(),
        metavar="TIME",
        help="ask the collection as it was then",
    )
    gates = parser.add_argument_group("pass criteria, else the exit status is 1")
    gates.add_argument(
        "--fail-under",
        action="append",
        metavar="MEASURE=VALUE",
        help="recall@10=0.8; anchored:correctness=0.7 is the lower end of an anchored score's interval; repeatable",
    )
    gates.add_argument("--baseline", metavar="RUN", help="compare with this run; set: with the set's baseline")
    gates.add_argument("--no-regressions", action="store_true", help="the run may not be worse than the baseline")
    gates.add_argument("--only", action="append", metavar="MEASURE", help="only this may not be worse; repeatable")
    written = parser.add_argument_group("what is written")
    written.add_argument("--junit", type=Path, metavar="FILE", help="a report that build servers read")
    written.add_argument("--jsonl", type=Path, metavar="FILE", help="the run and its items as JSON Lines")
    written.add_argument("--make-baseline", action="store_true", help="make the run the set's baseline if all holds")


def run(options: Options) -> Answer:
    """The run as the API answers it, with "comparison" where there is a baseline, and the "verdict"."""
    with as_usage():
        thresholds, anchored = _read_thresholds(options["fail_under"] or ())
        named = _read_baseline(options)
        started = _open_run(options, thresholds)
        baseline = _find_baseline(started, named, options)
    if options["forget_judgements"]:
        clear_stored(options["judge_model"], actor=None)
    ended = _work_off(started, quiet=bool(options.get("as_json")))
    against = compare_runs(baseline, [ended], keep=False).others[0] if baseline is not None else None
    findings = [_check_anchored(ended, measure, least) for measure, least in anchored.items()]
    findings += _find_regressions(against, options) if against is not None else []
    reasons = _reasons(ended, [match for match in findings if match.problem])
    _write(options, ended, findings)
    if options["make_baseline"] and not reasons:
        make_baseline(ended)
    return EvaluationRunOut.from_orm(ended).model_dump(mode="json", exclude_unset=True) | {
        "comparison": None if against is None else {
            "baseline": str(baseline.pk) if baseline else "",
            "conclusion": ConclusionOut.from_orm(against.verdict).model_dump(mode="json"),
            "changes": [ChangeOut.from_orm(change).dict() for change in against.changes],
        },
        "verdict": {"passed": not reasons, "reasons": reasons},
    }  # fmt: skip


def _open_run(options: Options, thresholds: dict[str, float]) -> EvaluationRun:
    values = [name for name in ("golden_set", "resume", "retry_failed") if options[name]]
    if len(values) != 1:
        raise UsageError("evaluate takes either a SET, or --resume RUN, or --retry-failed RUN")
    if earlier := options["resume"] or options["retry_failed"]:
        result = find_run(earlier)
        _check_set_baseline(result.golden_set, options)
        if options["retry_failed"]:
            return lifecycle.retry_failed(result, None, send=False)
        return result if result.state == "queued" else lifecycle.resume_run(result, None, send=False)
    golden_set = find_set(options["golden_set"])
    _check_set_baseline(golden_set, options)
    chosen = read_plan(get_collection(golden_set.collection_name), options)
    settings = {name: options[name] for name in SETTINGS if options[name] is not None}
    switches = {"answers": False} if options["search_only"] else {}
    return lifecycle.start_run(
        golden_set,
        RunRequest(
            plan=chosen.plan,
            plan_name=chosen.name,
            settings=read_settings(settings | switches | {"contributions": options["contributions"]}),
            name=options["name"],
            purpose=EvaluationRun.Purpose.CLI,
            thresholds=thresholds,
        ),
        send=False,
    )


def _read_thresholds(pairs: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """(of means, of the lower ends of anchored scores)"""
    thresholds: dict[str, float] = {}
    for name, value in (split_pair("fail-under", pair) for pair in pairs):
        try:
            thresholds[name] = float(value)
        except ValueError:
            raise InvalidInput(f"--fail-under takes MEASURE=NUMBER, not {name}={value}", field="fail_under") from None
    anchored = {name.removeprefix(ANCHORED): least for name, least in thresholds.items() if name.startswith(ANCHORED)}
    if unknown := sorted(set(anchored) - set(LABELLED)):
        raise InvalidInput(
            f"people label {', '.join(LABELLED)}; --fail-under {ANCHORED} takes one of these, not {unknown[0]!r}",
            field="fail_under",
        )
    return {name: least for name, least in thresholds.items() if not name.startswith(ANCHORED)}, anchored


def _check_anchored(ended: EvaluationRun, measure: str, least: float) -> Finding:
    score = anchored_score(ended, measure)
    problem = ""
    if score is None or score.estimate is None:
        needed = f"{score.missing} more labels are" if score else "labels of a random sample of its answers are"
        problem = f"{measure} has no anchored score: {needed} needed (Human review)"
    elif score.estimate.low < least:
        problem = (
            f"the anchored {measure} is {score.estimate.value:.4f} and at least {score.estimate.low:.4f} "
            f"({score.estimate.labels} labels), and {least:g} must be reached"
        )
    return Finding("anchored", f"the anchored {measure} is at least {least:g}", problem)


def _wants_set_baseline(options: Options) -> bool:
    return options["baseline"] == OF_THE_SET or (options["no_regressions"] and not options["baseline"])


def _check_set_baseline(golden_set: GoldenSet | None, options: Options) -> None:
    if _wants_set_baseline(options) and (golden_set is None or golden_set.baseline_id is None):
        name = repr(golden_set.name) if golden_set is not None else "of this run, which was deleted,"
        raise UsageError(f"the golden set {name} has no baseline; make one with --make-baseline, or name a run")


def _read_baseline(options: Options) -> EvaluationRun | None:
    """The run that --baseline names. What is wrong about the comparison is refused before a run is started."""
    for name in options["only"] or ():
        find(name)
    if options["only"] and not options["no_regressions"]:
        raise UsageError("--only names metrics for --no-regressions; give that too")
    named = options["baseline"]
    return find_run(named) if named and named != OF_THE_SET else None


def _find_baseline(started: EvaluationRun, named: EvaluationRun | None, options: Options) -> EvaluationRun | None:
    """None where none is asked for. A run over other questions is refused before anything is asked."""
    baseline = named
    if _wants_set_baseline(options):
        baseline = started.golden_set.baseline if started.golden_set else None
    if baseline is not None:
        try:
            check_comparable(baseline, started)
        except ServiceError:
            lifecycle.cancel_run(started, None)
            raise
    return baseline


def _work_off(started: EvaluationRun, *, quiet: bool) -> EvaluationRun:
    done = started.done

    def tell(item: EvaluationItem) -> None:
        nonlocal done
        done += 1
        bar.show(done, started.total)

    try:
        with Bar("evaluate", "questions", started.total, quiet=quiet) as bar:
            return lifecycle.run_now(started, on_item=tell)
    except KeyboardInterrupt:
        raise StoppedError(
            f"Stopped: {done} of {started.total} questions are done. The run waits for a worker; "
            f"`python manage.py ragd evaluate --resume {started.pk}` goes on here."
        ) from None


def _find_regressions(against: RunDifference, options: Options) -> Iterator[Finding]:
    """With --only the named measures one by one, else the verdict on the run."""
    if not options["no_regressions"]:
        return
    if only := options["only"]:
        known = {change.name: change for change in against.changes}
        yield from (_describe_change(name, known.get(name)) for name in only)
    else:
        yield _describe_verdict(against.verdict)


def _describe_change(name: str, change: MeasureChange | None) -> Finding:
    """change: None for a measure that neither run scored."""
    problem = ""
    if change is None or change.difference is None:
        reason = change.reason if change is not None else ""
        problem = f"{name} cannot be compared: {reason or 'no question is scored in both runs'}"
    elif change.verdict == "regressed":
        low, high = change.difference.low, change.difference.high
        problem = f"{name} is worse by {change.difference.mean:+.4f} ({low:+.4f} to {high:+.4f})"
    return Finding(REGRESSIONS, f"{name} is not worse than the baseline", problem)


def _describe_verdict(verdict: RunVerdict) -> Finding:
    problem = verdict.sentence if verdict.kind == "worse" else ""
    return Finding(REGRESSIONS, "the run is not worse than the baseline", problem)


def _reasons(ended: EvaluationRun, regressions: Sequence[Finding]) -> list[str]:
    """Why the run does not pass; [] when it does."""
    reasons = []
    if ended.state != EvaluationRun.State.SUCCEEDED:
        reasons.append(f"the run is {ended.state}: {ended.error or 'it was ended'}")
    if ended.failed:
        reasons.append(f"{ended.failed} of {ended.total} questions failed or could not be scored")
    for miss in misses_of(ended):
        shown = "nothing" if miss.value is None else f"{miss.value:.4f}"
        reasons.append(f"{miss.measure} is {shown}, and {miss.bound:g} must be reached")
    own = ended.summary.get("own_thresholds", {}).get("failed", 0)
    if own:
        reasons.append(f"{own} questions miss a threshold of their own")
    return reasons + [finding.problem for finding in regressions]


def _write(options: Options, ended: EvaluationRun, regressions: Sequence[Finding]) -> None:
    try:
        if options["junit"] is not None:
            options["junit"].write_text(junit_xml(ended, regressions), encoding="utf-8")
        if options["jsonl"] is not None:
            message = f"wrote evaluation run {ended} into {options['jsonl'].name}"
            Reading("evaluationrun.export", message, ended, rows=ended.items.count()).note()
            with options["jsonl"].open("w", encoding="utf-8") as file:
                file.writelines(run_lines(ended))
    except OSError as error:
        raise UsageError(f"the report cannot be written: {error}; the run {ended.pk} is stored") from None


def show(answer: Answer) -> str:
    summary = answer["summary"]
    lines = [
        f"{answer['golden_set']} version {answer['set_version']}, {answer['done']} of {answer['total']} questions, "
        f"index version {answer['index_version']}, judge {answer['judge']}, {answer['took_ms'] / 1000:.1f} s",
        "",
        f"{'measure':<24} {'mean':>7}  {'95 % interval':<18} {'scored':<14} threshold",
    ]
    for name, mean in summary.get("measures", {}).items():
        value = "-" if mean["value"] is None else f"{mean['value']:.4f}"
        between = "" if mean["low"] is None else f"{mean['low']:.4f} to {mean['high']:.4f}"
        bound = answer["thresholds"].get(name)
        lines.append(
            f"{name:<24} {value:>7}  {between:<18} {mean['scored']:>4} of {mean['total']:<6} "
            f"{'' if bound is None else format(bound, 'g')}".rstrip()
        )
    outcomes = ", ".join(f"{name} {count}" for name, count in summary.get("outcomes", {}).items())
    lines += ["", f"outcomes: {outcomes or 'none'}"]
    if answer["comparison"]:
        compared = answer["comparison"]
        lines += ["", f"against {compared['baseline']}:", *_show_changes(compared["changes"])]
        lines += ["", compared["conclusion"]["sentence"]]
    verdict = answer["verdict"]
    lines += ["", *(f"FAILED: {reason}" for reason in verdict["reasons"])]
    return "\n".join([*lines, f"run {answer['id']}: {'passed' if verdict['passed'] else 'failed'}"])


def _show_changes(changes: Sequence[Answer]) -> Iterator[str]:
    for change in changes:
        difference = change["difference"]
        summary = "" if difference is None else (
            f"{difference['mean']:+.4f} ({difference['low']:+.4f} to {difference['high']:+.4f})"
        )  # fmt: skip
        yield f"{change['measure']:<24} {change['verdict']:<12} {summary}".rstrip()


COMMANDS = {
    "evaluate": Subcommand(
        "evaluate a golden set and check its pass criteria",
        add_arguments,
        run,
        show,
        lambda answer: bool(answer["verdict"]["passed"]),
    )
}
