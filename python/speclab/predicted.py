"""Closed forms as a frame: `speclab.predict`."""

from typing import Any

import pandas as pd

from . import theory
from .metric_units import units


def predict(**inputs: Any) -> pd.DataFrame:
    """Every closed form whose inputs are known, as `speclab theory` prints them. The keywords are those of `theory.predictions`.

    Index: name. Columns: quantity, unit, value, equation, assumptions. A value without a bound is inf.

    >>> speclab.predict(alpha=.8, gamma=5, c=.05).value["leviathan_3_8"]
    2.951423...
    """
    known = {**units(), "gamma": "tokens/step", "tau_sd": "tokens/step"}
    rows = [
        {
            "name": one.name,
            "quantity": one.quantity,
            "unit": known.get(one.quantity, ""),
            "value": one.value,
            "equation": one.equation,
            "assumptions": one.assumptions,
        }
        for one in theory.predictions(**inputs)
    ]
    columns = ["name", "quantity", "unit", "value", "equation", "assumptions"]
    return pd.DataFrame(rows, columns=columns).set_index("name")
