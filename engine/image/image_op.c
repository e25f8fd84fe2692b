/*
 * The image op: checked here, done by job.c or by the control thread (image_files.c). Called by
 * request.c. Rows go out as the client has room for them.
 */
#include "engine/image/image_op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/control.h"
#include "engine/image/image_files.h"
#include "engine/image/job.h"
#include "engine/image/pull_source.h"
#include "engine/request/request.h"
#include "engine/sandbox/pack.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

enum { ROWS_PER_TURN = 32 };

/* What a part works from; part->work. */
struct asking {
	struct image_query query;
	struct image_found *at; /* the next row */
	uint32_t index;
	char detail[80];
};

/* ---- rows ---- */

static struct dsec_wire_ref text_put(char *body, uint32_t *used, const char *text)
{
	uint32_t bytes = (uint32_t)strlen(text);
	struct dsec_wire_ref ref = { *used, bytes };

	memcpy(body + *used, text, bytes);
	*used += bytes;
	return ref;
}

uint32_t image_row_write(const struct image_row *row, char ret[IMAGE_ROW_BYTES_MAX])
{
	const struct image_record *record = row->record;
	uint32_t used = sizeof(struct dsec_wire_image_row);
	struct dsec_wire_image_row wire = {
		.size = sizeof wire,
		.users = row->users,
		.bytes = row->file_bytes,
		.content_bytes = record ? record->content_bytes : UINT64_MAX,
		.files = record ? record->files : UINT64_MAX,
		.age_ms = row->age_ms,
		.layers = record ? record->layers : 0,
		.dropped_nodes = row->dropped_nodes,
		.dropped_xattrs = row->dropped_xattrs,
		.new_bytes = row->new_bytes,
		.shared_bytes = row->shared_bytes,
		.segment_bytes = row->segment_bytes,
		.local_bytes = row->local_bytes,
	};

	wire.name = text_put(ret, &used, row->name);
	if (record) {
		wire.digest = text_put(ret, &used, record->digest);
		wire.created = text_put(ret, &used, record->created);
		wire.source = text_put(ret, &used, record->source);
	}
	memcpy(ret, &wire, sizeof wire);
	return used;
}

static void row_emit(struct asking *asking, const struct image_found *found)
{
	const struct request *request = asking->query.part->request;
	const struct image_row row = {
		.name = found->name,
		.record = found->record,
		.file_bytes = found->file_bytes,
		.age_ms = found->age_ms,
		.new_bytes = UINT64_MAX,
		.shared_bytes = UINT64_MAX,
		.segment_bytes = found->segment_bytes,
		.local_bytes = found->local_bytes,
		/* Of an image that all may read the others' use is nobody's business. */
		.users = tenant_owns_image(request->tenant, asking->query.part->shard->node,
					   found->name) ?
				 found->users :
				 UINT32_MAX,
	};
	char body[IMAGE_ROW_BYTES_MAX];
	struct emission e = { .kind = DSEC_EV_ROW,
			      .index = (uint16_t)asking->index++,
			      .body = body };

	e.bytes = image_row_write(&row, body);
	part_emit(asking->query.part, &e);
}

/* How many images name its segments is for who has all there is. */
static bool tells_contents(const struct part *part)
{
	return part->shard->node->tenant_count < 2 || part->request->tenant->is_everyone;
}

/* What an image says of itself, and where its contents are: one object, before its row. */
static int record_emit(struct asking *asking, const struct image_found *found)
{
	const char *contents = tells_contents(asking->query.part) ? found->contents : NULL;
	const size_t more = contents ? strlen(contents) : 0;
	struct emission e = { .kind = DSEC_EV_DATA };
	auto_free char *text = malloc(IMAGE_RECORD_BYTES_MAX + more);
	int r;

	if (!text)
		return -ENOMEM;
	r = image_record_text(found->record, text, IMAGE_RECORD_BYTES_MAX);
	if (r < 0)
		return r;
	if (more) { /* their braces meet */
		memcpy(text + r - 1, contents, more);
		text[r - 1] = ',';
		r += (int)more - 1;
	}
	e.body = text;
	e.bytes = (uint32_t)r;
	part_emit(asking->query.part, &e);
	return 0;
}

static bool may_read(const struct asking *asking, const char *name)
{
	const struct part *part = asking->query.part;

	return tenant_reads_image(part->request->tenant, part->shard->node, name);
}

/* ---- the answer ---- */

static struct status query_status(struct asking *asking)
{
	const struct image_query *query = &asking->query;
	struct status s = status_of_errno(query->result, "image", "name");

	if (query->result == -ENOENT || query->result == -ENOTDIR || query->result == -ELOOP) {
		s.code = DSEC_ABSENT;
		s.blame = DSEC_BLAME_CALLER;
		s.detail = "no such image";
	} else if (query->result == -EBUSY) {
		s.code = DSEC_CONFLICT;
		s.blame = DSEC_BLAME_CALLER;
		s.step = "in_use";
		(void)snprintf(asking->detail, sizeof asking->detail, "in use by %u sandbox%s",
			       query->users, query->users == 1 ? "" : "es");
		s.detail = asking->detail;
	} else if (query->result < 0) {
		s.step = "images";
	}
	return s;
}

static void asking_end(struct asking *asking, const struct status *status)
{
	struct emission final = { .kind = DSEC_EV_DONE, .status = *status };
	struct part *part = asking->query.part;

	part->work = NULL;
	part_end(part, NULL, &final);
	image_found_free(asking->query.found);
	free(asking);
}

static void rows_more(struct asking *asking);

static void rows_again(struct mail *mail, void *owner)
{
	(void)owner; /* the part's shard */
	rows_more(container_of(mail, struct part, mail)->work);
}

static void rows_more(struct asking *asking)
{
	struct status ok = STATUS_OK;

	for (int i = 0; asking->at && i < ROWS_PER_TURN; i++) {
		if (may_read(asking, asking->at->name))
			row_emit(asking, asking->at);
		asking->at = asking->at->next;
	}
	if (asking->at && !asking->query.part->unheard)
		part_again_with_room(asking->query.part, rows_again);
	else
		asking_end(asking, &ok);
}

static void query_answered(struct mail *mail, void *owner)
{
	struct asking *asking =
		container_of(container_of(mail, struct image_query, mail), struct asking, query);
	const struct image_found *found = asking->query.found;
	struct status s;

	(void)owner; /* the part's shard */
	if (*asking->query.name && !may_read(asking, asking->query.name))
		asking->query.result = -ENOENT;
	s = query_status(asking);
	if (!s.code && asking->query.verb == DSEC_IMAGE_INSPECT && found->record)
		s = status_of_errno(record_emit(asking, found), "image", "record");
	if (s.code) {
		asking_end(asking, &s);
		return;
	}
	asking->at = asking->query.found;
	rows_more(asking);
}

static struct status query_begin(struct part *part, uint32_t verb, const char *name)
{
	struct asking *asking = calloc(1, sizeof *asking);

	if (!asking)
		return status_of_errno(-ENOMEM, "image", "request");
	asking->query.part = part;
	asking->query.verb = may_read(asking, name) ? verb : DSEC_IMAGE_INSPECT;
	asking->query.answered = query_answered;
	(void)snprintf(asking->query.name, sizeof asking->query.name, "%s", name);
	part->work = asking;
	asking->query.mail.deliver = image_query_run;
	mail_send(part->shard->io, control_io(part->shard->node->control), &asking->query.mail);
	return STATUS_OK;
}

/* ---- the op ---- */

/* What each verb takes. */
static const struct image_rule {
	const char *job; /* its name where it is one; NULL: it asks the control thread */
	uint32_t flags;	 /* that it knows */
	uint32_t texts_least, texts_most;
	bool takes_name, needs_name;
	bool takes_archive; /* a stream, its kind, a tag */
	bool takes_sandbox;
	bool names_images; /* its texts do */
	bool is_nodes;	   /* of all images, or of files of this machine: not a tenant's */
	bool names_paths;  /* of this machine: the engine opens them as who it is */
} rules[] = {
	[DSEC_IMAGE_IMPORT] = { .job = "import",
				.flags = DSEC_IMAGE_LAYER,
				.takes_name = true,
				.needs_name = true,
				.takes_archive = true },
	[DSEC_IMAGE_LIST] = { 0 },
	[DSEC_IMAGE_INSPECT] = { .takes_name = true, .needs_name = true },
	[DSEC_IMAGE_REMOVE] = { .takes_name = true, .needs_name = true },
	[DSEC_IMAGE_COMPOSE] = { .job = "compose",
				 .texts_least = 1,
				 .texts_most = IMAGE_PARTS_MAX,
				 .takes_name = true,
				 .needs_name = true,
				 .names_images = true },
	[DSEC_IMAGE_GC] = { .job = "gc", .flags = DSEC_IMAGE_DRY_RUN, .is_nodes = true },
	[DSEC_IMAGE_VERIFY] = { .job = "verify",
				.flags = DSEC_IMAGE_LAZY,
				.takes_name = true,
				.is_nodes = true },
	[DSEC_IMAGE_PUSH] = { .job = "push",
			      .names_paths = true,
			      .flags = DSEC_IMAGE_ZSTD,
			      .texts_least = 1,
			      .texts_most = 1,
			      .takes_name = true,
			      .needs_name = true,
			      .is_nodes = true },
	[DSEC_IMAGE_PULL] = { .job = "pull",
			      .flags = DSEC_IMAGE_LAZY,
			      .texts_least = 1,
			      .texts_most = 1,
			      .takes_name = true,
			      .needs_name = true,
			      .is_nodes = true },
	[DSEC_IMAGE_PACK] = { .job = "pack",
			      .flags = DSEC_IMAGE_LAYER | DSEC_IMAGE_FLATTEN | DSEC_IMAGE_KILL,
			      .texts_most = IMAGE_TEXTS_MAX,
			      .takes_name = true,
			      .needs_name = true,
			      .takes_sandbox = true },
	[DSEC_IMAGE_HOTSET] = { .job = "hotset", .takes_name = true, .is_nodes = true },
};

_Static_assert((int)IMAGE_LAYER == (int)DSEC_IMAGE_LAYER, "as the programs have it");
_Static_assert((int)IMAGE_DRY_RUN == (int)DSEC_IMAGE_DRY_RUN, "as the programs have it");
_Static_assert((int)IMAGE_ZSTD == (int)DSEC_IMAGE_ZSTD, "as the programs have it");
_Static_assert((int)IMAGE_FLATTEN == (int)DSEC_IMAGE_FLATTEN, "as the programs have it");
_Static_assert((int)IMAGE_LAZY == (int)DSEC_IMAGE_LAZY, "as the programs have it");

enum { IMAGE_VERBS = sizeof rules / sizeof *rules };

static struct status image_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "image",
				.step = field,
				.detail = detail };
}

static struct status image_denied(const char *detail)
{
	return (struct status){ .code = DSEC_DENIED,
				.blame = DSEC_BLAME_CALLER,
				.table = "image",
				.step = "tenant",
				.detail = detail };
}

/* Of several tenants none does what concerns all: who has the engine's own socket does. */
static bool image_is_operator(const struct part *part)
{
	const struct request *request = part->request;

	if (part->shard->node->tenant_count < 2 && !request->tenant->is_everyone)
		return true;
	return request->is_own && (request->tenant->is_everyone || !request->tenant->index);
}

/* What is another's is as good as absent: see query_answered(). */
static struct status image_check_owner(const struct part *part, const char *name)
{
	const struct tenant *tenant = part->request->tenant;
	const struct node *node = part->shard->node;

	if (part->request->body.image.verb == DSEC_IMAGE_INSPECT ||
	    tenant_owns_image(tenant, node, name) ||
	    (part->request->body.image.verb == DSEC_IMAGE_REMOVE &&
	     !tenant_reads_image(tenant, node, name)))
		return STATUS_OK;
	return image_denied("a tenant's own images begin with its name and /");
}

/* Numbers, and what only some verbs take. */
static struct status fields_check(const struct dsec_wire_image *body, const struct image_rule *rule)
{
	if (body->flags & ~rule->flags)
		return image_invalid("flags", -EINVAL, "not of this verb");
	if (!wire_is_zero(body->reserved, sizeof body->reserved))
		return image_invalid("reserved", -EINVAL, NULL);
	if (body->kind >= IMPORT_KINDS || (body->kind && !rule->takes_archive))
		return image_invalid("kind", -EINVAL, NULL);
	if (!wire_is_zero(&body->sandbox, sizeof body->sandbox) != rule->takes_sandbox)
		return image_invalid("sandbox", -EINVAL,
				     rule->takes_sandbox ? "none is named" : "of a pack alone");
	return STATUS_OK;
}

static struct status name_check(const struct part *part, const struct image_rule *rule,
				const char *name)
{
	if (!*name && !rule->needs_name)
		return STATUS_OK;
	if (!rule->takes_name)
		return image_invalid("name", -EINVAL, "this verb names no image");
	if (image_name_check(name) < 0)
		return image_invalid("name", -EINVAL,
				     "letters, digits and . _ - : in parts separated by /");
	return image_check_owner(part, name);
}

/* Once more whole, of parts; of anything else nothing that would not be shown as it is. */
static struct status text_check(const struct part *part, const struct image_rule *rule,
				const char *text)
{
	if (rule->names_images) {
		if (image_name_check(text) < 0 || strlen(text) >= IMAGE_NAME_MAX)
			return image_invalid("items", -EINVAL, "a part is no image's name");
		if (!tenant_reads_image(part->request->tenant, part->shard->node, text))
			return image_status("image", -ENOENT);
		return STATUS_OK;
	}
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < 32 || *at == 127)
			return image_invalid("items", -EINVAL, "control characters in a text");
	return *text ? STATUS_OK : image_invalid("items", -EINVAL, "an empty text");
}

static struct status texts_take(const struct part *part, const struct image_rule *rule,
				struct image_words *ret)
{
	const struct wire *payload = &part->request->payload;
	const struct dsec_wire_items *items = &part->request->body.image.items;
	struct status s = STATUS_OK;
	uint32_t cursor = 0, used = 0;
	struct dsec_wire_ref item;

	if (wire_items_check(payload, items) < 0)
		return image_invalid("items", -EINVAL, "malformed");
	if (items->count < rule->texts_least || items->count > rule->texts_most)
		return image_invalid("items", -EINVAL, "too many or too few for this verb");
	if (items->bytes > IMAGE_TEXTS_BYTES_MAX)
		return image_invalid("items", -E2BIG, "over 32 KiB");
	if (!items->count)
		return STATUS_OK;
	ret->texts = malloc(items->bytes); /* lengths are longer than a NUL */
	if (!ret->texts)
		return status_of_errno(-ENOMEM, "image", "items");
	while (!s.code && wire_next(payload, items, &cursor, &item) > 0) {
		if (wire_string(payload, item, ret->texts + used, item.bytes + 1) < 0)
			return image_invalid("items", -EINVAL, "a NUL in a text");
		s = text_check(part, rule, ret->texts + used);
		used += item.bytes + 1;
	}
	ret->text_count = items->count;
	return s;
}

static struct status image_check(const struct part *part, struct image_words *ret)
{
	const struct dsec_wire_image *body = &part->request->body.image;
	const struct image_rule *rule = &rules[body->verb < IMAGE_VERBS ? body->verb : 0];
	struct status s;
	int r;

	if (body->verb < DSEC_IMAGE_IMPORT || body->verb >= IMAGE_VERBS)
		return image_invalid("verb", -EINVAL, "none of those there are");
	s = fields_check(body, rule);
	if (s.code)
		return s;
	r = wire_string(&part->request->payload, body->tag, ret->tag, sizeof ret->tag);
	if (r >= 0 && *ret->tag && !rule->takes_archive)
		r = -EINVAL;
	if (r < 0)
		return image_invalid("tag", r, "of an import, at most 128 bytes");
	r = wire_string(&part->request->payload, body->name, ret->name, sizeof ret->name);
	if (r < 0)
		return image_invalid("name", r, "at most 127 bytes");
	s = name_check(part, rule, ret->name);
	if (!s.code && rule->is_nodes && !image_is_operator(part))
		s = image_denied("of all tenants' images: for root, by the engine's own socket");
	if (!s.code && rule->names_paths && !part->request->is_own)
		s = image_denied(
			"it names paths of this machine: for root and the engine's own uid");
	return s.code ? s : texts_take(part, rule, ret);
}

static struct status job_begin(struct part *part, const char *verb, struct image_words *words)
{
	struct image_job *job;
	struct status s = image_job_start(part, verb, words, NULL, &job);

	if (!s.code)
		part->work = job;
	return s;
}

void image_part(struct part *part)
{
	const struct dsec_wire_image *body = &part->request->body.image;
	struct image_words words = { .texts = NULL };
	struct status s = image_check(part, &words);

	words.flags = body->flags;
	if (!s.code && body->verb == DSEC_IMAGE_PULL)
		s = pull_source_set(part->shard->config, part->request->is_own, &words);
	if (!s.code && rules[body->verb].takes_sandbox)
		s = pack_part(part, &words);
	else if (!s.code && rules[body->verb].job)
		s = job_begin(part, rules[body->verb].job, &words);
	else if (!s.code)
		s = query_begin(part, body->verb, words.name);
	free(words.texts);
	if (s.code)
		part_end(part, &s, NULL);
}

/* The others end soon by themselves. */
void image_part_cancel(struct part *part)
{
	const struct image_rule *rule = &rules[part->request->body.image.verb];

	if (part->work && rule->takes_sandbox)
		pack_part_cancel(part);
	else if (part->work && rule->job)
		image_job_cancel(part->work);
}

void image_input(struct part *part, struct part *input)
{
	struct status s = image_invalid("verb", -EINVAL, "only an import takes input");

	if (part->work && rules[part->request->body.image.verb].takes_archive)
		image_job_input(part->work, input);
	else
		part_end(input, &s, NULL);
}
