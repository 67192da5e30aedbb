"""What the programs here share: the site under test, the operator's login page, the upstream, and the run of cases."""

import json
import os
import sys
from collections import namedtuple
from urllib.parse import parse_qsl, urlsplit

import requests

WAY = os.environ["OAUTH2_WAY"]
ISSUER = os.environ["OAUTH2_SERVER"] + "/" + WAY
STRICT = WAY != "kong"
SIGNED = WAY == "signed"
LOGIN = "https://login.example.org/authorize"
TOKEN = ISSUER + "/oauth2/token"
REVOKE = ISSUER + "/oauth2/revoke"
INTROSPECT = ISSUER + "/oauth2/introspect"

App = namedtuple("App", "id secret redirect")
APP = App("app", "TheSecretOfTheApp", "https://app.example.org/callback")
PUBLIC = App("public-app", None, "https://public.example.org/callback")
ENCODED = App("app-2.example", "a+b %41/c=d&e~f!g*h", "https://app.example.org/back?tenant=7&area=a-b")

# The error for unusable codes and refresh tokens. Kong calls it `invalid_request`.
INVALID_GRANT = "invalid_grant" if STRICT else "invalid_request"
# What the operator's back end adds after it has checked the user's password.
PASSWORD = {"provision_key": "the-login-page", "authenticated_userid": "bob"}


def login(url):
    """Sends the browser to the login page. The user bob logs in, and the page asks the gateway."""
    at = urlsplit(url)
    assert f"{at.scheme}://{at.netloc}{at.path}" == LOGIN, url
    form = dict(parse_qsl(at.query)) | PASSWORD
    address = f"{os.environ['OAUTH2_BACK_CHANNEL']}/{WAY}/oauth2/authorize"
    told = requests.post(address, data=form, headers={"X-Forwarded-Proto": "https"}).json()
    assert "redirect_uri" in told, f"the gateway told the login page {told}"
    return told["redirect_uri"]


def error_in(url):
    """Returns the error in a URL that the browser comes back to."""
    return dict(parse_qsl(urlsplit(url).query)).get("error")


def opens(session, user=None, scope=None):
    """Whether a session of a library opens the upstream, and the upstream learns about the user."""
    answer = session.get(ISSUER + "/resource")
    assert answer.status_code == 200, answer.text
    seen = answer.json()["headers"]
    names = ("x-consumer-username", "x-authenticated-userid", "x-authenticated-scope")
    found = [seen.get(name) for name in names]
    assert found == ["app", user, scope], found


def refuses(access_token):
    """Whether the upstream stays closed for a token."""
    answer = requests.get(ISSUER + "/resource", headers={"Authorization": f"Bearer {access_token}"})
    assert answer.status_code == 401, answer.text


class Refused:
    """A block in which a library must report this error of the gateway."""

    def __init__(self, error):
        self.error = error

    def __enter__(self):
        return self

    def __exit__(self, kind, thrown, _):
        assert thrown is not None, f"it was not refused with {self.error}"
        if not isinstance(thrown, Exception):
            return False
        found = getattr(thrown, "error", None)
        assert found == self.error, f"it was not refused with {self.error} but {thrown!r}"
        return True


def run(cases):
    """Runs the cases named on the command line, and prints a line in JSON for each."""
    for name in sys.argv[1:]:
        failure = None
        try:
            cases[name]()
        except Exception as error:  # Every failure of a case is reported.
            failure = f"{type(error).__name__}: {error}"
        print(json.dumps({"case": name, "failure": failure}), flush=True)
