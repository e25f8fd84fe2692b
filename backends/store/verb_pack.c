/*
 * dsec-store pack: what a sandbox wrote, whose upper directory is IMAGE_FD_FURTHER, becomes a layer
 * of the store and an image: the layer over what the sandbox was made of, or alone. Called by
 * main.c. Must hold: nothing is sealed before all of it was scanned; nothing of a layer has a name
 * before it is whole.
 */
#include "backends/store/pack_wish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/residue.h"
#include "backends/store/scan.h"
#include "backends/store/store.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

enum { PROVENANCE_BYTES = 24 << 10, REPORT_BYTES = 40 << 10, FILES_MAX = 4 << 20 };

struct packing {
	struct store_job *job;
	struct pack_wish wish;
	struct tree *tree;
	int raw_fd;
	struct scanned scanned;
	struct sealed sealed;
	char provenance[PROVENANCE_BYTES], report[REPORT_BYTES];
};

static int progress_tell(void *owner, uint64_t files, uint64_t bytes)
{
	struct packing *p = owner;

	p->job->report.frame.files = files;
	p->job->report.frame.bytes = bytes;
	return report_progress(&p->job->report);
}

/* Bytes that the scan was over; now the sealer goes over them. */
static int seal_progress(void *owner, uint64_t files, uint64_t bytes)
{
	struct packing *p = owner;

	(void)files;
	p->job->report.frame.read_bytes = bytes;
	return report_progress(&p->job->report);
}

/* ---- the layer ---- */

/* What the caller has to hear is told with the codes that the engine knows it by. */
static int scan_failed(struct packing *p, int error)
{
	struct report *report = &p->job->report;
	const struct scanned *told = &p->scanned;

	if (error == -EKEYREJECTED) {
		report->step = "canary";
		return report_fail(report, EACCES, told->path, told->reason);
	}
	if (error == -EBADMSG || error == -EFBIG || error == -E2BIG)
		error = -EINVAL;
	return *told->reason ? report_fail(report, -error, told->path, told->reason) : error;
}

static int layer_scan(struct packing *p)
{
	const struct scan scan = { .upper_fd = IMAGE_FD_FURTHER,
				   .raw_fd = p->raw_fd,
				   .id_base = p->wish.id_base,
				   .residue = p->wish.residue,
				   .canaries = p->wish.canaries,
				   .bytes_max = p->job->bytes_max,
				   .files_max = FILES_MAX,
				   .progress = progress_tell,
				   .owner = p };
	int r;

	p->job->report.step = "scan";
	r = scan_upper(&scan, &p->tree, &p->scanned);
	if (r < 0)
		return scan_failed(p, r);
	report_layer(&p->job->report);
	return 0;
}

/* Names of rules and how often each matched; then what was left out. */
static void counts_write(struct json_writer *w, const struct packing *p)
{
	static const char *const drops[SCAN_DROPS] = {
		[SCAN_DROP_SOCKET] = "sockets",	  [SCAN_DROP_DEVICE] = "devices",
		[SCAN_DROP_ENGINE] = "engine",	  [SCAN_DROP_WHITEOUT] = "whiteout_names",
		[SCAN_DROP_XATTR] = "attributes",
	};
	const char *rule;
	uint64_t count = 0;

	json_object(w, "wiped");
	for (size_t i = 0; p->wish.residue && (rule = residue_counted(p->wish.residue, i, &count));
	     i++)
		if (count)
			json_unsigned(w, rule, count);
	json_end(w);
	json_object(w, "dropped");
	for (size_t i = 0; i < SCAN_DROPS; i++)
		if (p->scanned.dropped[i])
			json_unsigned(w, drops[i], p->scanned.dropped[i]);
	json_end(w);
	json_unsigned(w, "canaries", p->wish.canary_count);
}

static void bases_write(struct json_writer *w, const struct packing *p)
{
	char text[DIGEST_TEXT_BYTES];

	json_array(w, "manifests");
	for (uint32_t i = 0; i < p->wish.base_count; i++) {
		digest_text(p->wish.bases[i], text);
		json_string(w, NULL, text);
	}
	json_end(w);
}

/* Where the layer comes from. No time: the same sandbox gives the same manifest. */
static int provenance_write(struct packing *p)
{
	struct json_writer w;

	json_open(&w, p->provenance, sizeof p->provenance);
	json_object(&w, NULL);
	json_string(&w, "by", "pack");
	json_string(&w, "image", p->wish.image);
	json_string(&w, "sandbox", p->wish.sandbox);
	bases_write(&w, p);
	json_array(&w, "wipe");
	for (uint32_t i = 0; i < p->job->text_count; i++)
		if (!strncmp(p->job->texts[i], "wipe:", 5))
			json_string(&w, NULL, p->job->texts[i] + 5);
	json_end(&w);
	counts_write(&w, p);
	json_end(&w);
	return json_close(&w);
}

static int layer_seal(struct packing *p, struct store *store)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	struct seal seal = { .tree = p->tree,
			     .raw_fd = p->raw_fd,
			     .record = record,
			     .provenance = p->provenance,
			     .progress = seal_progress,
			     .owner = p };
	int r = record ? provenance_write(p) : -ENOMEM;

	p->job->report.step = "seal";
	if (r < 0)
		return r;
	(void)snprintf(record->source, sizeof record->source, "sandbox");
	record->layers = 1;
	return store_seal(store, &seal, &p->sealed);
}

/* ---- the image ---- */

static int image_compose(struct packing *p, struct store *store)
{
	auto_free uint8_t(*manifests)[DIGEST_BYTES] =
		calloc(p->wish.base_count + 1u, sizeof *manifests);
	auto_free struct image_record *record = calloc(1, sizeof *record);
	uint32_t count = p->job->flags & IMAGE_LAYER ? 0 : p->wish.base_count;
	auto_close int fd = openat(IMAGE_FD_SCRATCH, IMPORT_RESULT,
				   O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	int r;

	p->job->report.step = "compose";
	if (!manifests || !record)
		return -ENOMEM;
	if (fd < 0)
		return -errno;
	memcpy(manifests, p->wish.bases, count * sizeof *manifests);
	memcpy(manifests[count], p->sealed.manifest, DIGEST_BYTES);
	r = store_compose(store, manifests, count + 1, fd, record);
	if (r == -ENOENT)
		return report_fail(&p->job->report, ENOENT, p->wish.image,
				   "the store has not all of the sandbox's image any more");
	if (r < 0)
		return r;
	memcpy(p->job->report.frame.digest, record->digest, sizeof record->digest);
	return fsync(fd) < 0 ? -errno : 0;
}

static int report_write(struct packing *p)
{
	char layer[DIGEST_TEXT_BYTES];
	struct json_writer w;
	int r;

	digest_text(p->sealed.manifest, layer);
	json_open(&w, p->report, sizeof p->report);
	json_object(&w, NULL);
	json_string(&w, "layer", layer);
	bases_write(&w, p);
	json_unsigned(&w, "files", p->scanned.files);
	json_unsigned(&w, "whiteouts", p->scanned.whiteouts);
	json_unsigned(&w, "bytes", p->scanned.bytes);
	json_unsigned(&w, "new_bytes", p->sealed.new_bytes);
	json_unsigned(&w, "shared_bytes", p->sealed.shared_bytes);
	counts_write(&w, p);
	json_end(&w);
	r = json_close(&w);
	return r < 0 ? r : report_leave(p->report, w.bytes);
}

/* ---- all of it ---- */

static int layer_store(struct packing *p)
{
	struct store store;
	int r;

	p->job->report.step = "store";
	r = store_open(IMAGE_FD_IMAGES, &store);
	if (r < 0)
		return r;
	r = layer_seal(p, &store);
	if (r >= 0)
		r = image_compose(p, &store);
	store_close(&store);
	if (r >= 0)
		r = report_write(p);
	p->job->report.frame.new_bytes = p->sealed.new_bytes;
	p->job->report.frame.shared_bytes = p->sealed.shared_bytes;
	return r;
}

static int packing_run(struct packing *p)
{
	const char *word, *why;
	int r = pack_wish_read(p->job->texts, p->job->text_count, &p->wish, &word, &why);

	p->job->report.step = "rules";
	if (r < 0)
		return report_fail(&p->job->report, r == -E2BIG ? EINVAL : -r, word, why);
	p->job->report.step = "base";
	if (!p->wish.base_count && !(p->job->flags & IMAGE_LAYER))
		return report_fail(&p->job->report, EOPNOTSUPP, p->wish.image,
				   "the sandbox's image is not of the store: import it anew");
	p->job->report.step = "scratch";
	p->raw_fd = openat(IMAGE_FD_SCRATCH, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	if (p->raw_fd < 0)
		return -errno;
	r = layer_scan(p);
	return r < 0 ? r : layer_store(p);
}

int verb_pack(struct store_job *job)
{
	auto_free struct packing *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return -ENOMEM;
	p->job = job;
	p->raw_fd = -1;
	r = packing_run(p);
	cleanup_close(&p->raw_fd);
	pack_wish_done(&p->wish);
	tree_free(p->tree);
	return r;
}
