/* Tables for people. Called by verbs that list. Nothing is remembered between cells. */
#include "sdk/cli/table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/values.h"

void table_head(const struct options *options, const struct column *columns)
{
	const char *no_color = getenv("NO_COLOR");
	bool bold = isatty(STDOUT_FILENO) && !options->no_color && !(no_color && *no_color);

	/* Whether stdout took all is told at the end, by main(); so here and below. */
	if (bold)
		(void)fputs("\x1b[1m", stdout);
	for (const struct column *column = columns; column->name; column++)
		table_text(column, column->name);
	if (bold)
		(void)fputs("\x1b[0m", stdout);
	table_end();
}

void table_cell(const struct column *column, struct dsec_bytes bytes)
{
	int columns = (int)value_columns(bytes);

	value_write(stdout, bytes);
	if (column->width)
		(void)printf("%*s ", column->width > columns ? column->width - columns : 0, "");
}

void table_text(const struct column *column, const char *text)
{
	table_cell(column, (struct dsec_bytes){ text, strlen(text) });
}

void table_bytes(const struct column *column, uint64_t bytes)
{
	char text[VALUE_TEXT_BYTES];

	value_print_bytes(bytes, text);
	table_text(column, text);
}

void table_share(const struct column *column, uint64_t permille)
{
	char text[VALUE_TEXT_BYTES];

	(void)snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 "%%", permille / 10,
		       permille % 10); /* fits */
	table_text(column, permille == UINT64_MAX ? "-" : text);
}

void table_end(void)
{
	(void)putchar('\n');
}
