/*
 * dsec-store pack: what a sandbox wrote, whose upper directory is IMAGE_FD_FURTHER, becomes a layer
 * of the store and an image: the layer over what the sandbox was made of, or alone. Called by
 * main.c. Must hold: nothing is sealed before all of it was scanned; nothing of a layer has a name
 * before it is whole; an image that may be published has no byte that was not looked through: not
 * of layers below it, nor of segments that others made, which it would share.
 */
#include "backends/store/pack_wish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/canary.h"
#include "backends/store/digest_set.h"
#include "backends/store/manifest.h"
#include "backends/store/residue.h"
#include "backends/store/scan.h"
#include "backends/store/store.h"
#include "backends/store/verb.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

#define BY_FORK "fork" /* who made a layer, in its provenance */

enum {
	READ_BYTES = 256 << 10,
	PROVENANCE_BYTES = 24 << 10,
	REPORT_BYTES = 40 << 10,
	FILES_MAX = 4 << 20
};

struct packing {
	struct store_job *job;
	struct pack_wish wish;
	struct tree *tree;
	int raw_fd;
	struct scanned scanned;
	struct sealed sealed;
	uint32_t kept;		     /* of the layers below: so many stay as they are */
	struct digest_set beside;    /* their segments */
	struct image_record *record; /* of the layer; what is below says the rest */
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

/* ---- looking through ---- */

/* An image that nobody may name is never published. */
static bool is_fork(const struct packing *p)
{
	return *p->job->name == '.';
}

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

static struct scan scan_of(struct packing *p, struct residue *residue)
{
	return (struct scan){ .upper_fd = IMAGE_FD_FURTHER,
			      .raw_fd = p->raw_fd,
			      .id_base = p->wish.id_base,
			      .residue = residue,
			      .canaries = p->wish.canaries,
			      .bytes_max = p->job->bytes_max,
			      .files_max = FILES_MAX,
			      .progress = progress_tell,
			      .owner = p };
}

static int upper_scan(struct packing *p)
{
	const struct scan scan = scan_of(p, p->wish.residue);
	int r;

	p->job->report.step = "scan";
	r = scan_upper(&scan, &p->tree, &p->scanned);
	if (r < 0)
		return scan_failed(p, r);
	report_layer(&p->job->report);
	return 0;
}

static int base_failed(struct packing *p, int error)
{
	if (error == -ENOENT)
		return report_fail(&p->job->report, ENOENT, p->wish.image,
				   "the store has not all of the sandbox's image any more");
	return scan_failed(p, error);
}

/* One that stays as it is, or was just sealed. */
static int layer_look(struct packing *p, const struct store *store, const uint8_t *manifest,
		      struct residue *residue)
{
	struct scan scan = scan_of(p, residue);
	int r;

	scan.segments = residue ? &p->beside : NULL;
	scan.progress = seal_progress; /* nothing of it is in the layer */
	r = scan_layer(&scan, store, manifest, &p->scanned);
	return r < 0 ? base_failed(p, r) : 0;
}

static int below_look(struct packing *p, const struct store *store)
{
	const bool is_alone = is_fork(p) || p->job->flags & IMAGE_LAYER; /* nothing lies below */
	int r = 0;

	p->job->report.step = "base";
	for (uint32_t i = 0; r >= 0 && !is_alone && i < p->kept; i++)
		r = layer_look(p, store, p->wish.bases[i], p->wish.below);
	return r;
}

/* The image's file itself: names and attributes as EROFS has them, the record. */
static int file_look(struct packing *p, int fd)
{
	auto_free uint8_t *bytes = malloc(READ_BYTES);
	struct canary_scan scan;
	struct canary_hit hit;
	ssize_t n;

	if (!bytes)
		return -ENOMEM;
	canary_begin(&scan, p->wish.canaries);
	p->job->report.step = "canary";
	for (off_t at = 0; (n = pread(fd, bytes, READ_BYTES, at)) > 0; at += n)
		if (canary_feed(&scan, bytes, (size_t)n, &hit))
			return report_fail(&p->job->report, EACCES, NULL,
					   "a canary is in the image's own file");
	return n < 0 ? -errno : 0;
}

/* ---- layers of forks, or all of them, become one with what was written ---- */

/* What a fork made of a sandbox was never published, and nothing of it was wiped. */
static bool is_of_fork(const struct store_manifest *manifest)
{
	const char *text = manifest->provenance;
	struct json_value root, by;
	char maker[16];

	return text && json_parse(text, strlen(text), &root) >= 0 &&
	       json_member(&root, "by", &by) >= 0 &&
	       json_to_string(&by, maker, sizeof maker) >= 0 && !strcmp(maker, BY_FORK);
}

static int kept_count(struct packing *p, const struct store *store)
{
	bool found = p->job->flags & IMAGE_FLATTEN;
	int r = 0;

	p->kept = 0;
	while (r >= 0 && !found && p->kept < p->wish.base_count) {
		struct store_manifest manifest;

		r = store_manifest_load(store, p->wish.bases[p->kept], &manifest);
		if (r < 0)
			break;
		found = is_of_fork(&manifest);
		store_manifest_done(&manifest);
		p->kept += !found;
	}
	return r;
}

static int folded_scan(struct packing *p, const struct store *store, struct tree *tree)
{
	struct scan scan = scan_of(p, p->wish.residue);
	auto_close int raw = openat(IMAGE_FD_SCRATCH, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	int r;

	if (raw < 0)
		return -errno;
	scan.raw_fd = raw;
	r = scan_fold(&scan, store, tree, p->raw_fd, &p->scanned);
	if (r < 0)
		return base_failed(p, r);
	(void)close(p->raw_fd); /* it was only read */
	p->raw_fd = take_fd(&raw);
	return 0;
}

static int layers_fold(struct packing *p, const struct store *store)
{
	struct tree *tree = NULL;
	int r;

	p->kept = p->wish.base_count;
	if (is_fork(p))
		return 0;
	p->job->report.step = "base";
	r = kept_count(p, store);
	if (r >= 0 && p->kept < p->wish.base_count) {
		const struct store_layers layers = { p->wish.bases + p->kept,
						     p->wish.base_count - p->kept,
						     .is_lowest = !p->kept };

		r = store_merge(store, &layers, &tree, p->record);
		if (r >= 0)
			r = tree_merge(tree, p->tree, !p->kept);
		if (r >= 0)
			r = folded_scan(p, store, tree);
		if (r >= 0) {
			tree_free(p->tree);
			p->tree = take_ptr(tree);
		}
	}
	tree_free(tree);
	return r < 0 ? base_failed(p, r) : 0;
}

/* ---- the layer ---- */

/* Names of rules, and how often each matched. */
static void residue_write(struct json_writer *w, const char *key, const struct residue *residue)
{
	const char *rule;
	uint64_t count = 0;

	json_object(w, key);
	for (size_t i = 0; (rule = residue_counted(residue, i, &count)); i++)
		if (count)
			json_unsigned(w, rule, count);
	json_end(w);
}

/* What was wiped, what stays in layers below, what was left out. */
static void counts_write(struct json_writer *w, const struct packing *p)
{
	static const char *const drops[SCAN_DROPS] = {
		[SCAN_DROP_SOCKET] = "sockets",	  [SCAN_DROP_DEVICE] = "devices",
		[SCAN_DROP_ENGINE] = "engine",	  [SCAN_DROP_WHITEOUT] = "whiteout_names",
		[SCAN_DROP_XATTR] = "attributes",
	};

	residue_write(w, "wiped", p->wish.residue);
	residue_write(w, "below", p->wish.below);
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
	json_unsigned(w, "folded", p->wish.base_count - p->kept);
}

/* Where the layer comes from. No time: the same sandbox gives the same manifest. */
static int provenance_write(struct packing *p)
{
	struct json_writer w;

	json_open(&w, p->provenance, sizeof p->provenance);
	json_object(&w, NULL);
	json_string(&w, "by", is_fork(p) ? BY_FORK : "pack");
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
	struct seal seal = { .tree = p->tree,
			     .raw_fd = p->raw_fd,
			     .record = p->record,
			     .provenance = p->provenance,
			     .is_alone = !is_fork(p),
			     .beside = &p->beside,
			     .progress = seal_progress,
			     .owner = p };
	int r = provenance_write(p);

	p->job->report.step = "seal";
	if (r < 0)
		return r;
	(void)snprintf(p->record->source, sizeof p->record->source, "sandbox");
	p->record->layers = 1;
	return store_seal(store, &seal, &p->sealed);
}

/* ---- the image ---- */

static int image_compose(struct packing *p, struct store *store)
{
	auto_free uint8_t(*manifests)[DIGEST_BYTES] =
		calloc(p->wish.base_count + 1u, sizeof *manifests);
	auto_free struct image_record *record = calloc(1, sizeof *record);
	uint32_t count = p->job->flags & IMAGE_LAYER ? 0 : p->kept;
	auto_close int fd = openat(IMAGE_FD_SCRATCH, VERB_UNFINISHED,
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
	if (r >= 0 && p->wish.canaries)
		r = file_look(p, fd);
	if (r < 0)
		return base_failed(p, r);
	memcpy(p->job->report.frame.digest, record->digest, sizeof record->digest);
	return fsync(fd) < 0 || renameat(IMAGE_FD_SCRATCH, VERB_UNFINISHED, IMAGE_FD_SCRATCH,
					 IMPORT_RESULT) < 0 ?
		       -errno :
		       0;
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
	r = layers_fold(p, &store);
	if (r >= 0)
		r = below_look(p, &store);
	if (r >= 0)
		r = layer_seal(p, &store);
	if (r >= 0 && p->wish.canaries)
		r = layer_look(p, &store, p->sealed.manifest, NULL);
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
	r = upper_scan(p);
	return r < 0 ? r : layer_store(p);
}

int verb_pack(struct store_job *job)
{
	auto_free struct packing *p = calloc(1, sizeof *p);
	auto_free struct image_record *record = calloc(1, sizeof *record);
	int r;

	if (!p || !record)
		return -ENOMEM;
	p->job = job;
	p->record = record;
	p->raw_fd = -1;
	r = packing_run(p);
	cleanup_close(&p->raw_fd);
	digest_set_done(&p->beside);
	pack_wish_done(&p->wish);
	tree_free(p->tree);
	return r;
}
