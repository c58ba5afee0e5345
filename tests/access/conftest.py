from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # this file is read before Django is set up
    from tests.access.house import House
    from tests.access.marsh import People


@pytest.fixture(scope="module")
def module_house(module_db: None) -> House:
    from tests.access.house import build_house

    return build_house()


@pytest.fixture
def house(module_house: House, db: None) -> House:
    return deepcopy(module_house)


@pytest.fixture(scope="module")
def module_people(module_db: None) -> People:
    from tests.access.marsh import make_people

    return make_people()


@pytest.fixture
def people(module_people: People, db: None) -> People:
    return deepcopy(module_people)
