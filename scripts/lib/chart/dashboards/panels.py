"""Panels, variables, links and annotations in the style that all dashboards share."""

import dataclasses
import json
import string
import urllib.parse
from collections.abc import Iterable, Sequence

from grafana_foundation_sdk.builders import common, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import prometheus as prometheus_models

from . import style

DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "oarlock"


@dataclasses.dataclass(frozen=True)
class Query:
    expr: str
    legend: str = ""
    min_step: str = ""  # the scrape interval where it differs from that of the data source


def targets(queries: Sequence[Query], instant: bool = False, as_table: bool = False) -> list[Builder[Dataquery]]:
    out: list[Builder[Dataquery]] = []
    for letter, query in zip(string.ascii_uppercase, queries, strict=False):
        target = prometheus.Dataquery().ref_id(letter).datasource(DATASOURCE).expr(query.expr)
        if query.legend:
            target.legend_format(query.legend)
        if query.min_step:
            target.interval(query.min_step)
        if as_table:
            target.format(prometheus_models.PromQueryFormat.TABLE)
        out.append(target.instant() if instant else target.range())
    return out


def color(mode: models.FieldColorModeId) -> builders.FieldColor:
    return builders.FieldColor().mode(mode)


def override(**properties: object) -> list[models.DynamicConfigValue]:
    """The properties of an override; double underscores stand for the dots in their names."""
    return [models.DynamicConfigValue(id_val=name.replace("__", "."), value=value) for name, value in properties.items()]


def fixed_color(name: str) -> models.FieldColor:
    return models.FieldColor(mode=models.FieldColorModeId.FIXED, fixed_color=name)


# ---- Panels ------------------------------------------------------------------------------------------------------------


def stat_panel(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 4,
    decimals: int | None = None,
    limits: builders.ThresholdsConfig | None = None,
    mappings: list[models.ValueMapping] | None = None,
    filled: bool = False,
    sparkline: bool = False,
    instant: bool = False,
) -> stat.Panel:
    """A panel of single numbers: the newest value of each series in the time range, or with `instant` its current value."""
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .no_value("–")
        .datasource(DATASOURCE)
        .targets(targets(queries, instant))
        .span(width)
        .height(4)
        .thresholds(limits or style.thresholds(style.BLUE))
        .color_scheme(color(models.FieldColorModeId.THRESHOLDS))
        .color_mode(options.BigValueColorMode.BACKGROUND if filled else options.BigValueColorMode.VALUE)
        .graph_mode(options.BigValueGraphMode.AREA if sparkline else options.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )
    if decimals is not None:
        panel.decimals(decimals)
    if mappings:
        panel.mappings(mappings)
    return panel


def usage(title: str, description: str, *queries: Query) -> timeseries.Panel:
    """A stacked panel of numbers of accelerators."""
    return graph(title, description, "none", *queries, stacked=True, many=True)


def usage_by_class(query: Query) -> timeseries.Panel:
    panel = usage(
        "Accelerators by class of time",
        "The mean number of allocated accelerators in the hour before each point, by what they did (docs/guides/goodput.md).",
        query,
    )
    for name, shade in style.USAGE_CLASSES.items():
        panel.override_by_name(name, override(color=fixed_color(shade)))
    return panel


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    height: int = 8,
    stacked: bool = False,
    maximum: float | None = None,
    minimum: float | None = 0,
    limits: builders.ThresholdsConfig | None = None,
    many: bool = False,
    decimals: int | None = None,
    axis: str = "",
) -> timeseries.Panel:
    """A panel of time series. With `many` of them, the legend is a table to the right with the newest values."""
    legend = common.VizLegendOptions().show_legend(True)
    if many:
        legend.display_mode(options.LegendDisplayMode.TABLE).placement(options.LegendPlacement.RIGHT).calcs(["lastNotNull"])
    else:
        legend.display_mode(options.LegendDisplayMode.LIST).placement(options.LegendPlacement.BOTTOM).calcs([])
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .unit(unit)
        .datasource(DATASOURCE)
        .targets(targets(queries))
        .span(width)
        .height(height)
        .color_scheme(color(models.FieldColorModeId.PALETTE_CLASSIC))
        .line_width(1)
        .fill_opacity(70 if stacked else 0 if many else 8)
        .show_points(options.VisibilityMode.NEVER)
        .legend(legend)
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI).sort(options.SortOrder.DESCENDING))
    )
    if stacked:
        panel.stacking(common.StackingConfig().mode(options.StackingMode.NORMAL).group("A")).line_width(0)
    if minimum is not None:
        panel.min(minimum)
    if maximum is not None:
        panel.max(maximum)
    if decimals is not None:
        panel.decimals(decimals)
    if limits:
        panel.thresholds(limits)
        panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(options.GraphThresholdsStyleMode.DASHED))
    if axis:
        panel.axis_label(axis)
    return panel


def timeline(
    title: str,
    description: str,
    *queries: Query,
    mappings: list[models.ValueMapping],
    width: int = 12,
    height: int = 8,
    limits: builders.ThresholdsConfig | None = None,
) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .unit("none")
        .datasource(DATASOURCE)
        .targets(targets(queries))
        .span(width)
        .height(height)
        .mappings(mappings)
        .thresholds(limits or style.thresholds(style.GRAY))
        .color_scheme(color(models.FieldColorModeId.THRESHOLDS))
        .merge_values(True)
        .show_value(options.VisibilityMode.AUTO)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .legend(
            common.VizLegendOptions()
            .show_legend(False)
            .display_mode(options.LegendDisplayMode.LIST)
            .placement(options.LegendPlacement.BOTTOM)
            .calcs([])
        )
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.SINGLE).sort(options.SortOrder.NONE))
    )


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table: a label of the series, or with a query the values of that query."""

    title: str
    label: str = ""
    query: str = ""
    unit: str = "none"
    width: int | None = None
    properties: list[models.DynamicConfigValue] = dataclasses.field(default_factory=list)


def table_panel(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    key: Query,
    labels: Iterable[str] = (),
    height: int = 8,
    sort_by: str = "",
) -> table.Panel:
    """A table with one row for each combination of labels of the series of `key`, whose value is not shown.

    The results of the queries are merged by their common labels. `labels` are shown as they are, without a column's style.
    """
    values = [column for column in columns if column.query]
    queries = [key] + [Query(column.query) for column in values]
    names = {column.title: f"Value #{letter}" for letter, column in zip(string.ascii_uppercase[1:], values, strict=False)}
    field = {column.title: names.get(column.title, column.label) for column in columns}
    order = [*labels, *field.values()]
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .unit("none")
        .no_value("–")
        .datasource(DATASOURCE)
        .targets(targets(queries, instant=True, as_table=True))
        .span(24)
        .height(height)
        .thresholds(style.thresholds("text"))
        .color_scheme(color(models.FieldColorModeId.THRESHOLDS))
        .cell_height(options.TableCellHeight.SM)
        .filterable(True)
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": {"Time": True, "Value #A": True},
                    "includeByName": {},
                    "indexByName": {name: index for index, name in enumerate(order)},
                    "renameByName": {},
                },
            )
        )
    )
    if sort_by:
        panel.sort_by([common.TableSortByFieldState().display_name(sort_by).desc(False)])
    for column in columns:
        properties = override(
            displayName=column.title, unit=column.unit, **({"custom__width": column.width} if column.width else {})
        )
        panel.override_by_name(field[column.title], properties + column.properties)
    return panel


# ---- Links -------------------------------------------------------------------------------------------------------------


def dashboard_url(uid: str, **variables: str) -> str:
    """The address of another dashboard with the data sources, the cluster and the time range of this one."""
    kept = "&".join(f"${{{name}:queryparam}}" for name in ("datasource", "loki", "cluster"))
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return f"/d/{uid}/{uid}?{kept}{chosen}&${{__url_time_range}}"


def explore_url(stream: str) -> str:
    """The address of Grafana's Explore with the logs of a LogQL stream selector, in the data source $loki.

    Names of variables, such as ${namespace}, stay readable to Grafana; everything else is percent-encoded.
    """
    pane = {
        "datasource": "${loki}",
        "queries": [{"refId": "A", "expr": stream, "queryType": "range"}],
        "range": {"from": "${__from}", "to": "${__to}"},
    }
    encoded = urllib.parse.quote(json.dumps({"logs": pane}, separators=(",", ":")), safe="")
    pieces = encoded.split("%24%7B")
    out = pieces[0]
    for piece in pieces[1:]:
        name, rest = piece.split("%7D", 1)
        out += "${" + urllib.parse.unquote(name) + "}" + rest
    return f"/explore?schemaVersion=1&orgId=1&panes={out}"


def data_links(*links: tuple[str, str]) -> list[dict[str, object]]:
    return [{"title": title, "url": url, "targetBlank": url.startswith("/explore")} for title, url in links]


# ---- Annotations -------------------------------------------------------------------------------------------------------


class PrometheusAnnotation(models.AnnotationQuery):
    """An annotation from a Prometheus query, with the fields that this data source adds to the schema of annotations.

    With `value_is_time`, the value of a sample is the time of the event in milliseconds; otherwise each sample above 0 is
    an event at the time of the sample. Grafana 10 and later read the query from "target", earlier versions from "expr".
    """

    def __init__(self, name: str, icon_color: str, expr: str, title: str, text: str, value_is_time: bool) -> None:
        super().__init__(name=name, datasource=DATASOURCE, enable=True, icon_color=icon_color, expr=expr)
        self.details: dict[str, object] = {
            "target": prometheus.Dataquery().ref_id("Anno").datasource(DATASOURCE).expr(expr).range().build(),
            "titleFormat": title,
            "textFormat": text,
            "useValueForTime": value_is_time,
        }

    def to_json(self) -> dict[str, object]:
        return {**super().to_json(), **self.details}


# ---- Dashboards --------------------------------------------------------------------------------------------------------


def query_variable(
    name: str, label: str, query: str, *, multi: bool = True, all_value: str | None = ".+"
) -> builders.QueryVariable:
    variable = (
        builders.QueryVariable(name)
        .label(label)
        .datasource(DATASOURCE)
        .query({"query": query, "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(multi)
        .include_all(True)
        .current(models.VariableOption(selected=True, text="All", value="$__all"))
    )
    return variable.all_value(all_value) if all_value else variable


def source_variable(name: str, label: str, plugin: str) -> builders.DatasourceVariable:
    return builders.DatasourceVariable(name).label(label).type(plugin)


class Board:
    """A dashboard under construction: rows of panels from top to bottom."""

    def __init__(self, uid: str, title: str, description: str, metric: str, *variables: builders.QueryVariable) -> None:
        """`metric` is one whose label "cluster" fills the variable of this name."""
        # A Prometheus of one cluster has no label "cluster", which ".*" matches as well.
        cluster = query_variable("cluster", "Cluster", f"label_values({metric}, cluster)", multi=False, all_value=".*")
        self.builder = (
            builders.Dashboard(title)
            .uid(uid)
            .description(description)
            .tags([TAG, "kubernetes"])
            .readonly()
            .version(1)
            .time("now-1h", "now")
            .refresh("30s")
            .timezone("browser")
            .tooltip(models.DashboardCursorSync.TOOLTIP)
            .variables(
                [
                    source_variable("datasource", "Data source", "prometheus"),
                    source_variable("loki", "Logs", "loki"),
                    cluster,
                    *variables,
                ]
            )
            .link(
                builders.DashboardLink("Oarlock")
                .type(models.DashboardLinkType.DASHBOARDS)
                .tags([TAG])
                .as_dropdown(True)
                .include_vars(True)
                .keep_time(True)
                .icon("external link")
                .tooltip("The other dashboards of Oarlock.")
            )
        )
        self.annotate()

    def link_logs(self, url: str) -> None:
        self.builder.link(
            builders.DashboardLink("Logs")
            .type(models.DashboardLinkType.LINK)
            .url(url)
            .icon("doc")
            .target_blank(True)
            .tooltip("The logs in Explore, from the selected Loki data source.")
        )

    def annotate(self, *annotations: PrometheusAnnotation) -> None:
        self.builder.build().annotations = models.AnnotationContainer(list_val=list(annotations))

    def row(self, title: str, *members: Builder[models.Panel]) -> None:
        self.builder.with_row(builders.Row(title))
        for member in members:
            self.builder.with_panel(member)

    def build(self) -> models.Dashboard:
        board = self.builder.build()
        for number, panel in enumerate(board.panels or [], start=1):
            panel.id_val = number
        return board
