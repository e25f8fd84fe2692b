/*
 * The image op: checked here, done by import.c or by the control thread (image_files.c). Called by
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
#include "engine/request/request.h"
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

/* What an image says of itself, before its row. */
static int record_emit(struct asking *asking, const struct image_found *found)
{
	struct emission e = { .kind = DSEC_EV_DATA };
	auto_free char *text = malloc(IMAGE_RECORD_BYTES_MAX);
	int r;

	if (!text)
		return -ENOMEM;
	r = image_record_text(found->record, text, IMAGE_RECORD_BYTES_MAX);
	if (r < 0)
		return r;
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

static struct status image_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "image",
				.step = field,
				.detail = detail };
}

/* Texts of a request, checked. */
struct image_words {
	char name[IMAGE_NAME_MAX], tag[IMPORT_TAG_BYTES];
};

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
	return (struct status){ .code = DSEC_DENIED,
				.blame = DSEC_BLAME_CALLER,
				.table = "image",
				.step = "tenant",
				.detail = "a tenant's own images begin with its name and /" };
}

static struct status image_check(const struct part *part, struct image_words *ret)
{
	const struct dsec_wire_image *body = &part->request->body.image;
	int r;

	if (body->verb < DSEC_IMAGE_IMPORT || body->verb > DSEC_IMAGE_REMOVE)
		return image_invalid("verb", -EINVAL, "import, list, inspect or remove");
	if (body->flags || !wire_is_zero(body->reserved, sizeof body->reserved))
		return image_invalid("reserved", -EINVAL, NULL);
	if (body->kind >= IMPORT_KINDS || (body->kind && body->verb != DSEC_IMAGE_IMPORT))
		return image_invalid("kind", -EINVAL, NULL);
	r = wire_string(&part->request->payload, body->tag, ret->tag, sizeof ret->tag);
	if (r >= 0 && *ret->tag && body->verb != DSEC_IMAGE_IMPORT)
		r = -EINVAL;
	if (r < 0)
		return image_invalid("tag", r, "of an import, at most 128 bytes");
	r = wire_string(&part->request->payload, body->name, ret->name, sizeof ret->name);
	if (r < 0)
		return image_invalid("name", r, "at most 127 bytes");
	if (body->verb == DSEC_IMAGE_LIST)
		return *ret->name ? image_invalid("name", -EINVAL, "a list names no image") :
				    STATUS_OK;
	if (image_name_check(ret->name) < 0)
		return image_invalid("name", -EINVAL,
				     "letters, digits and . _ - : in parts separated by /");
	return image_check_owner(part, ret->name);
}

void image_part(struct part *part)
{
	const struct dsec_wire_image *body = &part->request->body.image;
	struct image_words words = { "", "" };
	struct status s = image_check(part, &words);

	if (!s.code && body->verb == DSEC_IMAGE_IMPORT)
		s = import_part(part, words.name, words.tag);
	else if (!s.code)
		s = query_begin(part, body->verb, words.name);
	if (s.code)
		part_end(part, &s, NULL);
}

static bool is_import(const struct part *part)
{
	return part->work && part->request->body.image.verb == DSEC_IMAGE_IMPORT;
}

/* The others end soon by themselves. */
void image_part_cancel(struct part *part)
{
	if (is_import(part))
		import_cancel(part);
}

void image_input(struct part *part, struct part *input)
{
	struct status s = image_invalid("verb", -EINVAL, "only an import takes input");

	if (is_import(part))
		import_input(part, input);
	else
		part_end(input, &s, NULL);
}
