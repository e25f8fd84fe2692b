/*
 * Owns how a run is told and whether it was good. Called by main. Must hold: what makes a run bad
 * is said in words, and the JSON has every field whatever happened.
 */
#include "loadgen/report.h"

#include "loadgen/clock.h"
#include "loadgen/histogram.h"
#include "loadgen/row.h"

#include <dsec/dsec.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_accounted(const struct load_result *result)
{
	return result->asked == result->done + result->refused + result->failed;
}

bool report_is_good(const struct report *report)
{
	const struct load_result *result = report->result;

	return !report->error && is_accounted(result) && !result->failed && result->done &&
	       result->measured && result->probes && !report->live &&
	       !residue_total(&report->residue);
}

/* ---- JSON ---- */

static json_t *includes_json(const struct report *report)
{
	const struct load_options *load = &report->options->load;
	json_t *includes = json_array();
	char text[128];

	for (int i = 0; i < LOAD_INCLUDES_MAX && load->scenario->includes[i]; i++)
		json_array_append_new(includes, json_string(load->scenario->includes[i]));
	json_array_append_new(
		includes, json_string(load->network == DSEC_NETWORK_PRIVATE ? "network private" :
				      load->network == DSEC_NETWORK_SHARED  ? "network shared" :
									      "network none"));
	json_array_append_new(includes, json_string(load->is_fresh_root ?
							    "root file system rebuilt every time" :
							    "untouched root file systems reused"));
	json_array_append_new(includes, json_string("requests and events over the rings"));
	snprintf(text, sizeof(text), "isolation asserted inside the first and every %uth sandbox",
		 load->probe_every);
	json_array_append_new(includes, json_string(text));
	return includes;
}

static json_t *peers_json(const struct options *options)
{
	json_t *peers = json_object();

	for (uint32_t i = 0; i < options->peer_count; i++)
		json_object_set_new(peers, options->peers[i].name,
				    json_real(options->peers[i].rate_per_s));
	return peers;
}

static json_t *residue_json(const struct report *report)
{
	const struct residue_report *residue = &report->residue;

	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "processes",
			 (json_int_t)residue->processes, "zombies", (json_int_t)residue->zombies,
			 "namespaces", (json_int_t)residue->namespaces, "mounts",
			 (json_int_t)residue->mounts, "slots_kept", (json_int_t)residue->slots,
			 "settle_ms", (json_int_t)report->settle_ms, "alive_seen",
			 (json_int_t)report->alive_seen);
}

static int64_t each_bytes(const struct report *report, uint64_t before, uint64_t after)
{
	uint64_t created = report->result->created;

	return created ? ((int64_t)after - (int64_t)before) / (int64_t)created : 0;
}

static json_t *hold_json(const struct report *report)
{
	const struct machine_memory *before = &report->memory_before, *held = &report->memory_held;
	const struct load_result *result = report->result;

	return json_pack(
		"{s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "sandboxes", (json_int_t)result->created,
		"memory_bytes_each",
		(json_int_t)each_bytes(report, held->available_bytes, before->available_bytes),
		"slab_bytes_each",
		(json_int_t)each_bytes(report, before->slab_bytes, held->slab_bytes),
		"percpu_bytes_each",
		(json_int_t)each_bytes(report, before->percpu_bytes, held->percpu_bytes),
		"page_table_bytes_each",
		(json_int_t)each_bytes(report, before->page_tables_bytes, held->page_tables_bytes),
		"create_p99_first_tenth_us", row_us_at(result->latency_first, 0.99),
		"create_p99_last_tenth_us", row_us_at(result->latency_last, 0.99));
}

static double cpu_us_each(const struct report *report)
{
	uint64_t busy_us = report->time_end.busy_us - report->time_begin.busy_us;

	return report->result->measured ? (double)busy_us / (double)report->result->measured : 0;
}

/* Of less than a second there are no rates. */
static struct row row_of(const struct report *report)
{
	const struct load_result *result = report->result;
	const struct load_options *load = &report->options->load;
	uint64_t seconds = result->duration_ns / CLOCK_SECOND_NS;

	return (struct row){ .name = report->options->name,
			     .latency_of = load->scenario->latency_of,
			     .trouble = result->trouble,
			     .latency = result->latency,
			     .machine = &report->machine,
			     .asked = result->asked,
			     .done = result->done,
			     .refused = result->refused,
			     .failed = result->failed,
			     .measured = result->measured,
			     .duration_ns = result->duration_ns,
			     .rates = result->rates,
			     .rate_count = seconds > LOAD_RATES_MAX ? 0 : (uint32_t)seconds,
			     .in_flight = load->in_flight,
			     .is_good = report_is_good(report) };
}

static void lifecycle_add(json_t *root, const struct load_result *result)
{
	if (!result->lifecycle->total)
		return;
	json_object_set_new(root, "lifecycle_p50_us", json_real(row_us_at(result->lifecycle, 0.5)));
	json_object_set_new(root, "lifecycle_p99_us",
			    json_real(row_us_at(result->lifecycle, 0.99)));
}

static json_t *report_json(const struct report *report)
{
	const struct options *options = report->options;
	const struct load_options *load = &options->load;
	const struct load_result *result = report->result;
	const struct row row = row_of(report);
	json_t *root = row_json(&row);

	json_object_set_new(root, "live", json_integer((json_int_t)report->live));
	json_object_set_new(root, "residue",
			    json_integer((json_int_t)residue_total(&report->residue)));
	json_object_set_new(root, "includes", includes_json(report));
	json_object_set_new(root, "floor_rate_per_s",
			    options->floor_rate_per_s > 0 ? json_real(options->floor_rate_per_s) :
							    json_null());
	json_object_set_new(root, "peers", peers_json(options));
	json_object_set_new(root, "loop", json_string(load->rate_per_s > 0 ? "open" : "closed"));
	json_object_set_new(root, "asked_rate_per_s", json_real(load->rate_per_s));
	json_object_set_new(root, "reused", json_integer((json_int_t)result->reused));
	json_object_set_new(root, "cpu_us_each", json_real(cpu_us_each(report)));
	json_object_set_new(root, "steal_us",
			    json_integer((json_int_t)(report->time_end.steal_us -
						      report->time_begin.steal_us)));
	json_object_set_new(root, "isolation_probes", json_integer((json_int_t)result->probes));
	json_object_set_new(root, "isolation_assertions",
			    json_integer((json_int_t)result->assertions));
	json_object_set_new(root, "callbacks_over_1ms",
			    json_integer((json_int_t)report->callbacks_over_1ms));
	json_object_set_new(root, "callback_max_us",
			    json_integer((json_int_t)report->callback_max_us));
	json_object_set_new(root, "residue_seen", residue_json(report));
	if (load->scenario->is_holding)
		json_object_set_new(root, "hold", hold_json(report));
	lifecycle_add(root, result);
	return root;
}

int report_write_json(const struct report *report, const char *path)
{
	return row_append(report_json(report), path);
}

/* ---- for people ---- */

static void bad_print(const struct report *report)
{
	const struct load_result *result = report->result;
	const struct residue_report *residue = &report->residue;

	if (report->error)
		printf("  BAD: the run ended early: %s\n", strerror(-report->error));
	if (!is_accounted(result))
		printf("  BAD: asked is not done + refused + failed\n");
	if (result->failed)
		printf("  BAD: %" PRIu64 " failed\n", result->failed);
	if (!result->done || !result->measured)
		printf("  BAD: nothing was done in the measured time\n");
	if (!result->probes)
		printf("  BAD: isolation was asserted in no sandbox\n");
	if (report->live)
		printf("  BAD: %" PRIu64 " sandboxes are still there\n", report->live);
	if (residue_total(residue))
		printf("  BAD: residue: %" PRIu64 " processes, %" PRIu64 " zombies, %" PRIu64
		       " namespaces, %" PRIu64 " mounts; first: %s\n",
		       residue->processes, residue->zombies, residue->namespaces, residue->mounts,
		       residue->first);
	if (result->trouble[0])
		printf("  first trouble: %s\n", result->trouble);
}

void report_print(const struct report *report)
{
	const struct load_options *load = &report->options->load;
	const struct load_result *result = report->result;
	const struct row row = row_of(report);

	printf("%s: %.0f/s over %.1f s (median second %u/s), %s: p50 %.0f us, p99 %.0f us,"
	       " p99.9 %.0f us\n",
	       row.name, row_rate_per_s(&row), (double)result->duration_ns / 1e9,
	       row_rate_median(&row), row.latency_of, row_us_at(result->latency, 0.5),
	       row_us_at(result->latency, 0.99), row_us_at(result->latency, 0.999));
	printf("  asked %" PRIu64 " = done %" PRIu64 " + refused %" PRIu64 " + failed %" PRIu64
	       "; live %" PRIu64 ", residue %" PRIu64 "; %" PRIu64
	       " isolation assertions in %" PRIu64 " probes held\n",
	       result->asked, result->done, result->refused, result->failed, report->live,
	       residue_total(&report->residue), result->assertions, result->probes);
	printf("  %.0f us of CPU each, %" PRIu64 " of %" PRIu64 " on reused roots, %" PRIu64
	       " engine callbacks over 1 ms (longest %" PRIu64 " us)\n",
	       cpu_us_each(report), result->reused, result->created, report->callbacks_over_1ms,
	       report->callback_max_us);
	if (load->scenario->is_holding)
		printf("  %.1f KiB each by MemAvailable (slab %.1f KiB); create p99 %.0f us at the"
		       " start, %.0f us at the end\n",
		       (double)each_bytes(report, report->memory_held.available_bytes,
					  report->memory_before.available_bytes) /
			       1024,
		       (double)each_bytes(report, report->memory_before.slab_bytes,
					  report->memory_held.slab_bytes) /
			       1024,
		       row_us_at(result->latency_first, 0.99),
		       row_us_at(result->latency_last, 0.99));
	if (!report_is_good(report) || result->trouble[0])
		bad_print(report);
}
