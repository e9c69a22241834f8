"""A fixture of pytest: a test that takes `attention_case` runs once for each case of cases.txt. In the test file:

    pytest_plugins = ["attentiond.fixture"]

    def test_attention(attention_case):
        attention_case(attention, dtype="float32")  # settings as those of check.check()
"""

import pytest

from attentiond import check
from attentiond.cases import read_cases
from attentiond.daemon import Daemon


@pytest.fixture(scope="session")
def attention_service():
    daemon = Daemon()
    yield daemon.client
    daemon.close()


@pytest.fixture(params=read_cases(), ids=str)
def attention_case(request, attention_service):
    def judge(function, seed=1, **settings):
        """Checks the function with the case. A case that needs what the function does not take is skipped."""
        row, = check.check(function, attention_service.base_url, [request.param], seed=seed, **settings)
        if row.verdict == "skipped":
            pytest.skip(row.says)
        if not row.right:
            pytest.fail("\n".join([f"{row.case}: {row.verdict}", *check.described(row, seed)]), pytrace=False)
    return judge
