"""Verdicts on rows of simulations in sentences: the best schedulers, and missed targets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ramsis.runtime.routing import DISPATCHES
from ramsis.tables import effective_words, with_error

OVERLOAD = 0.1  # a row with a larger share of violations is overloaded

Row = Mapping[str, Any]
Rows = Sequence[Row]
_MOST_NAMES = 5  # of a sentence; more are counted


def target_words(row: Row) -> str:
    """Describe the target of a row in words; empty where the row has none.

    >>> target_words({"max_violation": 0.001, "min_accuracy": 0.9})
    'at most 0.1 % violations, at least 0.9 accuracy'
    """
    most = row.get("max_violation")
    words = [] if most is None else [f"at most {100 * most:g} % violations"]
    for key, name in (("min_accuracy", "accuracy"),
                      ("min_effective_accuracy", "effective accuracy")):
        if row.get(key) is not None:
            words.append(f"at least {row[key]:g} {name}")
    return ", ".join(words)


def setting_words(row: Row) -> str:
    """Return the number of workers and the SLO of a row, for a title."""
    return f"{row['workers']} workers, SLO {row['slo_ms']:g} ms"


def simulation_verdict(rows: Rows) -> list[str]:
    """Summarise a simulation: the best scheduler, its violations, and rows that miss the target.

    Rows are those of ``simulate --json``. If they have ``meets_target``, a row is good enough if
    it meets the target; rows without requests, where it is None, are left out. Otherwise a row is
    good enough if it is not overloaded. The first sentence names the best row at the highest load
    with a row that is good enough.
    """
    target = target_words(rows[0])
    empty = [row for row in rows if target and row.get("meets_target", True) is None]
    rows = [row for row in rows if row not in empty]
    nothing = _listed("No requests arrived, so nothing is shown of the target", empty,
                      figures=False)
    if not rows:
        return nothing
    good = [row for row in rows if (row.get("meets_target") if target else not _overloaded(row))]
    # The first sentences: the best row at this load, the next best, and the fewest violations.
    load = max(_load(row) for row in good or rows)
    at_load = [row for row in rows if _load(row) == load]
    candidates = [row for row in at_load if row in good]
    if candidates:
        best, *others = sorted(
            candidates, key=lambda row: -(row["effective_accuracy"] or 0.0))
        claim = f"meets the target ({target})" if target else "has the highest effective accuracy"
        sentences = [f"{best['label']}{_at(best)} {claim}: {_figures(best)}{_beyond(best)}"]
        fewest = min(at_load, key=lambda row: row["violation_rate"])
        if fewest["violation_rate"] >= best["violation_rate"]:
            fewest = best
        hint = "" if target else "; `simulate --max-violation` says which rows meet a target"
        if others:
            sentences.append(f"Next best{' that meets it' if target else ''}"
                             + (f", with the fewest violations: {_named(fewest)}{hint}"
                                if others[0] is fewest else f": {_named(others[0])}"))
        if fewest is not best and fewest not in others[:1]:
            sentences.append(f"Fewest violations: {_named(fewest)}{hint}")
    else:
        best = min(at_load, key=lambda row: row["violation_rate"])
        claim = f"No row meets the target ({target})" if target else "Every row is OVERLOAD"
        sentences = [f"{claim}: {best['label']}{_at(best)} has the fewest violations: "
                     f"{_figures(best)}{_beyond(best)}"]
    highest = max(map(_load, rows))
    if candidates and load < highest:
        sentences.append(f"Above {load:.6g} queries/s no row "
                         + ("meets the target" if target else "is free of OVERLOAD"))
    if target and candidates:
        sentences += _listed("Misses the target", [row for row in rows if row not in good
                                                   and _load(row) <= load])
    sentences += nothing
    sentences += _listed(f"OVERLOAD (over {OVERLOAD:.0%} late or dropped)",
                         filter(_overloaded, rows))
    return sentences + _listed("Promise not kept", filter(_breaks_promise, rows),
                               lambda row: f", {row['expected_violation_rate']:.4%} promised")


def sweep_verdict(
    rows: Rows, axes: Mapping[str, str], *, score: str = "effective_accuracy",
    bound: str = "upper_bound", words: str = "effective accuracy",
) -> list[str]:
    """Summarise a sweep: winners by setting, margins, gaps to the bound, overloaded rows.

    Rows have ``scheduler``, ``violation_rate``, and the keys below. ``axes`` are the names of the
    keys in which rows differ, other than the scheduler; ``score``, ``bound`` and ``words`` the key
    of the compared figure, that of its upper bound, and the name of the figure.
    """
    settings: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.get(score) is not None:
            settings.setdefault(tuple(row.get(key) for key in axes), []).append(row)
    wins: dict[str, list[tuple[tuple[Any, ...], Row, Row | None]]] = {}
    lost = 0
    for place, rows_there in settings.items():
        ranked = sorted([row for row in rows_there if not _overloaded(row)] or rows_there,
                        key=lambda row: -row[score])
        second = ranked[1] if len(ranked) > 1 else None
        wins.setdefault(ranked[0]["scheduler"], []).append((place, ranked[0], second))
        lost += _overloaded(ranked[0])
    total = len(settings)
    sentences = []
    for name, settings_won in sorted(wins.items(), key=lambda pair: -len(pair[1]))[:_MOST_NAMES]:
        where = [] if len(settings_won) == total else _where(
            [place for place, _, _ in settings_won], list(settings), axes)
        sentences.append(_won(name, settings_won, total, where, score, bound, words))
    if lost:
        sentences.append(f"In {lost} of {_settings(total)} every row is OVERLOAD")
    policies = {row["scheduler"] for row in rows if _is_policy(row["scheduler"])}
    if policies and not all(map(_is_policy, wins)):
        sentences.append("Policies pay for headroom and a price of violations, unless these are "
                         f"set to 0, which {words} at the profiled times does not count")
    late = [row for row in rows if _overloaded(row)]

    def terms(row: Row) -> str:
        return "".join(f", {_name(title)} {_value(row.get(key))}" for key, title in axes.items())

    return sentences + _listed(f"OVERLOAD (over {OVERLOAD:.0%} late or dropped) in {len(late)} of "
                               f"{len(rows)} rows", late, terms, name="scheduler")


def _is_policy(name: str) -> bool:
    return name.partition(":")[0] in DISPATCHES


def _won(
    name: str, wins: Sequence[tuple[tuple[Any, ...], Row, Row | None]], total: int,
    where: Sequence[str], score: str, bound: str, words: str,
) -> str:
    """Describe how often a scheduler is best, by how much, and how far below the bound.

    ``wins`` has for each setting where it is best the values of the axes, its row, and that of the
    second best, None without one; ``where`` the texts of these settings, of ``total``. For
    ``score``, ``bound`` and ``words`` see :func:`sweep_verdict`.
    """
    leads = [first[score] - second[score] for _, first, second in wins if second is not None]
    text = f"{name} is best in " + (f"{len(wins)} of " if total > 1 else "") + _settings(total)
    if where:
        text += f" ({'; '.join(where)})"
    text += f": {_range([first[score] for _, first, _ in wins], '.4f')} {words}"
    if leads:
        text += f", {_range(leads, '.4f')} more than the next"
        close = sum(second is not None and first[score] - second[score] <= math.hypot(
            *(row.get(f"{score}_half_width") or 0.0 for row in (first, second)))
            for _, first, second in wins)
        if close:
            text += f" (within the errors in {close})"
    short = [max(0.0, 1.0 - first[score] / first[bound])
             for _, first, _ in wins if first.get(bound)]
    return text + (f", {_range(short, '.2%')} below the bound" if short else "")


def _where(
    places: Sequence[tuple[Any, ...]], everywhere: Sequence[tuple[Any, ...]],
    axes: Mapping[str, str],
) -> list[str]:
    """Return for each axis the values at which a scheduler is best, as text.

    Axes at all of whose values the scheduler is best are left out.
    """
    words = []
    for i, title in enumerate(axes.values()):
        all_values = {place[i] for place in everywhere}
        values = sorted({place[i] for place in places},
                        key=lambda value: (str(type(value)), value))
        if len(values) < len(all_values):
            few = len(values) <= _MOST_NAMES
            words.append(f"{_name(title)} " + (", ".join(map(_value, values)) if few else
                                        f"{_value(values[0])} to {_value(values[-1])}"))
    return words


def _name(title: str) -> str:
    """Return the title of a column without its unit."""
    return title.partition(" (")[0]


def _settings(total: int) -> str:
    return "the only setting" if total == 1 else f"{total} settings"


def _range(values: Sequence[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _value(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def _load(row: Row) -> float:
    """Return the load to compare by; a trace has none."""
    load = row.get("load_qps")
    return 0.0 if load is None else float(load)


def _at(row: Row) -> str:
    return "" if row.get("load_qps") is None else f" at {row['load_qps']:.6g} queries/s"


def overload_rate(row: Row) -> float:
    """Return the share of requests late, dropped or never answered; too early is no overload."""
    too_early = row["too_early"] / row["requests"] if row.get("too_early") else 0.0
    return (row.get("violation_rate") or 0.0) - too_early


def _overloaded(row: Row) -> bool:
    return overload_rate(row) > OVERLOAD


def _figures(row: Row) -> str:
    reached = with_error(row["effective_accuracy"] or 0.0,
                         row.get("effective_accuracy_half_width"))
    return (f"{reached} {effective_words(row.get('accuracy'))}, "
            f"{row['violation_rate']:.4%} violations")


def _named(row: Row) -> str:
    return f"{row['label']} ({_figures(row)})"


def _beyond(row: Row) -> str:
    bound = row.get("upper_bound")
    return "" if bound is None else (
        f"; no scheduler with {bounded_schedulers(row)} passes {bound:.4f}")


def _breaks_promise(row: Row) -> bool:
    """Return whether violations exceed the promise by more than the error of both."""
    promised = row.get("expected_violation_rate")
    return promised is not None and row["violation_rate"] - promised > math.hypot(
        *(row.get(f"{name}_half_width") or 0.0
          for name in ("violation_rate", "expected_violation_rate")))


def _listed(
    what: str, rows: Iterable[Row], more: Callable[[Row], str] = lambda row: "",
    name: str = "label", *, figures: bool = True,
) -> list[str]:
    """Return a sentence that names rows, with their violations; none without rows."""
    names = list(rows)
    if not names:
        return []
    words = [f"{row[name]}{_at(row) if name == 'label' else ''}{more(row)}"
             + (f" ({row['violation_rate']:.4%} violations)" if figures else "")
             for row in names[:_MOST_NAMES]]
    more_rows = len(names) - _MOST_NAMES
    return [f"{what}: {'; '.join(words)}" + (f"; and {more_rows} more" if more_rows > 0 else "")]


def one_model_bound(row: Mapping[str, Any]) -> float | None:
    """Return a row's bound for schedulers that answer each request by one model.

    Rows of policies with second opinions have another bound as ``upper_bound``.
    """
    bound: float | None = row.get("upper_bound_one_model", row.get("upper_bound"))
    return bound


def bounded_schedulers(row: Row) -> str:
    """Describe the schedulers that a row's bounds hold for: one model or cascades per request.

    Rows with second opinions have ``upper_bound_one_model`` beside the bound for schedulers with
    cascades, and a search for the fewest workers their ``gain``.
    """
    cascades = "upper_bound_one_model" in row or row.get("gain") is not None
    return "one model or a cascade per request" if cascades else "one model per request"


def upper_bounds(rows: Rows, x: str = "load_qps") -> dict[str, dict[Any, float]]:
    """Return bounds on effective accuracy over the key ``x``, by a name with the schedulers."""
    bounds: dict[str, dict[Any, float]] = {}
    for row in rows:
        cascades = row["upper_bound"] if "upper_bound_one_model" in row else None
        for name, bound in (("upper bound (one model per request)", one_model_bound(row)),
                            ("upper bound (with cascades)", cascades)):
            if bound is not None:
                bounds.setdefault(name, {})[row[x]] = bound
    return {name: dict(sorted(line.items())) for name, line in sorted(bounds.items())}


def bounds_on_workers(rows: Rows, key: str = "workers_bound") -> dict[str, dict[Any, float]]:
    """Return lower bounds on workers or cost over the load, by a name with the schedulers."""
    bounds: dict[str, dict[Any, float]] = {}
    for row in rows:
        cascades = row.get("gain") is not None
        name = "bound (with cascades)" if cascades else "bound (one model per request)"
        bounds.setdefault(name, {})[row["load_qps"]] = row[key]
    return {name: dict(sorted(line.items())) for name, line in sorted(bounds.items())}
