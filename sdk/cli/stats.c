/* `dsec stats`: what sandboxes use now. Called by main.c. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum {
	STATS_ID,
	STATS_EXECS,
	STATS_PROCESSES,
	STATS_CPU,
	STATS_MEMORY,
	STATS_PEAK,
	STATS_READ,
	STATS_WRITTEN,
	STATS_RECEIVED,
	STATS_SENT,
	STATS_DISK,
	STATS_INODES,
	STATS_THROTTLED
};

static const struct column columns[] = {
	[STATS_EXECS] = { "EXECS", 7 },		[STATS_READ] = { "READ", 9 },
	[STATS_WRITTEN] = { "WRITTEN", 9 },	[STATS_RECEIVED] = { "RECEIVED", 9 },
	[STATS_SENT] = { "SENT", 9 },		[STATS_ID] = { "ID", 26 },
	[STATS_PROCESSES] = { "PROCESSES", 9 }, [STATS_CPU] = { "CPU", 10 },
	[STATS_MEMORY] = { "MEMORY", 9 },	[STATS_PEAK] = { "PEAK", 9 },
	[STATS_DISK] = { "DISK", 9 },		[STATS_INODES] = { "INODES", 8 },
	[STATS_THROTTLED] = { "THROTTLED", 0 }, { NULL, 0 },
};

static void usage_json(const struct dsec_usage *usage)
{
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(usage->id));
	(void)json_object_set_new(object, "processes", json_integer(usage->processes));
	(void)json_object_set_new(object, "cpu_us", json_amount(usage->cpu_us));
	(void)json_object_set_new(object, "memory_bytes", json_amount(usage->memory_bytes));
	(void)json_object_set_new(object, "memory_peak_bytes",
				  json_amount(usage->memory_peak_bytes));
	(void)json_object_set_new(object, "disk_bytes", json_amount(usage->disk_bytes));
	(void)json_object_set_new(object, "inodes", json_amount(usage->inodes));
	(void)json_object_set_new(object, "io_read_bytes", json_amount(usage->io_read_bytes));
	(void)json_object_set_new(object, "io_written_bytes", json_amount(usage->io_written_bytes));
	(void)json_object_set_new(object, "network_received_bytes",
				  json_amount(usage->network_received_bytes));
	(void)json_object_set_new(object, "network_sent_bytes",
				  json_amount(usage->network_sent_bytes));
	(void)json_object_set_new(object, "egress_connections",
				  json_amount(usage->egress_connections));
	(void)json_object_set_new(object, "egress_refused", json_amount(usage->egress_refused));
	(void)json_object_set_new(object, "egress_dropped", json_amount(usage->egress_dropped));
	(void)json_object_set_new(object, "egress_capped", json_amount(usage->egress_capped));
	(void)json_object_set_new(object, "throttles", json_amount(usage->throttles));
	(void)json_object_set_new(object, "throttled_us", json_amount(usage->throttled_us));
	(void)json_object_set_new(object, "execs_running", json_amount(usage->execs_running));
	(void)json_object_set_new(object, "execs_total", json_amount(usage->execs_total));
	(void)json_line(stdout, object); /* told at the end, by main() */
}

static void usage_show(const struct dsec_usage *usage)
{
	char text[2 * VALUE_TEXT_BYTES];

	dsec_id_print(usage->id, text);
	table_text(&columns[STATS_ID], text);
	(void)snprintf(text, sizeof(text), "%" PRIu64 "/%" PRIu64, usage->execs_running,
		       usage->execs_total); /* fits, as below */
	table_text(&columns[STATS_EXECS], text);
	(void)snprintf(text, sizeof(text), "%u", usage->processes);
	table_text(&columns[STATS_PROCESSES], text);
	(void)snprintf(text, sizeof(text), "%" PRIu64 " ms", usage->cpu_us / 1000);
	table_text(&columns[STATS_CPU], usage->cpu_us == UINT64_MAX ? "-" : text);
	table_bytes(&columns[STATS_MEMORY], usage->memory_bytes);
	table_bytes(&columns[STATS_PEAK], usage->memory_peak_bytes);
	table_bytes(&columns[STATS_READ], usage->io_read_bytes);
	table_bytes(&columns[STATS_WRITTEN], usage->io_written_bytes);
	table_bytes(&columns[STATS_RECEIVED], usage->network_received_bytes);
	table_bytes(&columns[STATS_SENT], usage->network_sent_bytes);
	table_bytes(&columns[STATS_DISK], usage->disk_bytes);
	(void)snprintf(text, sizeof(text), "%" PRIu64, usage->inodes);
	table_text(&columns[STATS_INODES], usage->inodes == UINT64_MAX ? "-" : text);
	(void)snprintf(text, sizeof(text), "%" PRIu64 " ms", usage->throttled_us / 1000);
	table_text(&columns[STATS_THROTTLED], usage->throttles ? text : "-");
	table_end();
}

static void usage_tell(void *state, const struct dsec_event *event)
{
	const struct options *options = state;

	if (event->kind != DSEC_EV_ROW || !event->body)
		return;
	if (options->json)
		usage_json(event->body);
	else
		usage_show(event->body);
}

static int stats(struct session *session)
{
	const struct options *options = session->options;
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	struct dsec_call call = session_call(session);
	struct dsec_select select;
	int64_t ticket;

	if (select_all(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	ticket = dsec_stats(session->d, &call, &select);
	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_events(session, ticket, "stats", usage_tell, (void *)options) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

int verb_stats(const struct options *options)
{
	struct session session = { .options = options };

	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, stats(&session));
}
