"""The main navigation, the tabs of sections and collections and the first step of the breadcrumb, from their lists."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from django import template
from django.conf import settings
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from collections_app.access.rules import name_page
from collections_app.http.navigation import ACCOUNT, HOME, SECTIONS, Page, Reader, Section, find_section, tab_links
from collections_app.http.page_requests import help_address

register = template.Library()


@register.inclusion_tag("components/rail.html", takes_context=True)
def rail(context: Context) -> dict[str, Any]:
    """Brand and sections; those stay away in which nothing is offered to the reader."""
    request = context["request"]
    found = find_section(name_page(request, request.path))
    here = found[0] if found else None
    links = [_link(section, here, request) for section in _of_rail(request.user)]
    shared = {"server_name": settings.RAGD_NAME, "brand": context.get("brand")}
    return shared | {"links": links, "at_home": request.path == "/"}


def _of_rail(reader: Reader) -> list[Section]:
    return [section for section in SECTIONS if section.rail(reader) and section.offered(reader)]


def _link(section: Section, here: Section | None, request: Any) -> dict[str, str]:
    href = section.offered(request.user)[0].href
    current = "" if section is not here else "page" if href == request.path else "true"
    return {"href": href, "symbol": section.symbol, "label": section.title, "key": section.key, "current": current}


@register.simple_tag(takes_context=True)
def go_keys(context: Context) -> list[tuple[str, str]]:
    """(letter after g, where it leads): Home and the sections of the reader."""
    reader = context["request"].user
    return [("h", HOME.title), *((section.key, section.title) for section in _of_rail(reader))]


@register.simple_tag(takes_context=True)
def account_pages(context: Context) -> list[Page]:
    return ACCOUNT.offered(context["request"].user)


@register.simple_tag(takes_context=True, name="help_address")
def help_address_of_page(context: Context) -> str:
    return help_address(context["request"])


@register.inclusion_tag("components/section_tabs.html", takes_context=True)
def section_tabs(context: Context) -> dict[str, Any]:
    """The tabs of the section that the address belongs to; the one of this page is current."""
    request = context["request"]
    found = find_section(name_page(request, request.path))
    if found is None or found[0].has_menu:
        return {"tabs": []}
    section, here = found
    tabs = [(page, page is here) for page in section.offered(request.user) if page.is_tab]
    return {"label": section.title, "tabs": tabs}


@register.inclusion_tag("components/section_menu.html", takes_context=True)
def section_menu(context: Context) -> dict[str, Any]:
    """The pages of a section that has a menu, under their headings; nothing elsewhere and without a request."""
    request = context.get("request")
    found = find_section(name_page(request, request.path)) if request else None
    if request is None or found is None or not found[0].has_menu:
        return {}
    section, here = found
    pages = [(page, page is here) for page in section.offered(request.user)]
    groups = [(gettext(group), list(those)) for group, those in groupby(pages, lambda each: each[0].group)]
    return {"label": section.title, "groups": groups}


@register.simple_tag(takes_context=True)
def section_crumb(context: Context) -> SafeString:
    """The section as the first step of the breadcrumb; "" on Home and on pages without a request."""
    request = context.get("request")
    found = find_section(name_page(request, request.path)) if request else None
    pages = found[0].offered(request.user) if found and request else []
    if not found or not pages:
        return SafeString("")
    return format_html('<li><a href="{}">{}</a></li>', pages[0].href, found[0].title)


@register.inclusion_tag("collections/parts/tabs.html", takes_context=True)
def collection_tabs(context: Context) -> dict[str, Any]:
    """The tabs of the collection of the page, and the pages below the current one."""
    tabs, below = tab_links(context["collection"], str(context.get("tab", "")))
    return {"tabs": tabs, "below": below, "collection": context["collection"]}
