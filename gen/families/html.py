"""What a notebook shows in the place of a long repr: a table, and the text of a kernel to unfold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gen.families.base import Operand, Spec

_ROLES = {"in": "input", "out": "output", "inout": "input and output", "number": "number"}


def shown(title: str, rows: Iterable[Sequence[object]], *, source: str = "") -> str:
    """A title over a table, as HTML.

    Args:
        title: what is shown.
        rows: of the table, whose first cell says what the others are.
        source: the text of a kernel, which is folded; empty: none.
    """
    lines = (
        f"<tr>{_cell('th', name)}{''.join(_cell('td', content) for content in contents)}</tr>"
        for name, *contents in rows
    )
    text = f"<details><summary>source</summary><pre>{escape(source)}</pre></details>" if source else ""
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table>{text}</div>"


def _cell(tag: str, content: object) -> str:
    return f'<{tag} style="text-align:left">{escape(str(content))}</{tag}>'  # notebooks set cells to the right


class ShownSpec:
    """A spec that a notebook shows as a table: what it computes, and of which arrays."""

    def _repr_html_(self: Spec) -> str:
        arrays = ((one.name, f"{_ROLES[one.role]}, {one.dtype.name}{_axes(one)}") for one in self.operands)
        return shown(self.label, (("computes", self.summary), *arrays))


def _axes(operand: Operand) -> str:
    return f", {' x '.join(map(str, operand.axes))}" if operand.axes else ""
