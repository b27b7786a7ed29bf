# shellcheck shell=bash
# scripts/setup browser: a browser, and Playwright from PyPI, for scripts/test browser.
apt_install chromium fonts-dejavu-core pngquant python3 python3-venv
# shellcheck source=scripts/lib/readers.sh
source "$OARLOCK_ROOT/scripts/lib/readers.sh"

reader playwright 1.65.2 playwright.sync_api
