/*
 * The policy op: checked here, done on the control thread, where documents are read. Called by
 * request.c. Rows go out as the client has room for them; until then the policies they are about
 * are used.
 */
#include "engine/policy/policy_op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/policy/policies.h"
#include "engine/policy/services.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

enum { ROWS_PER_TURN = 32, DATA_BYTES = 16 << 10 };

/* What a part works from; part->work. To the control thread and home. */
struct query {
	struct mail mail;
	struct part *part;
	char name[GUARD_POLICY_NAME_MAX + 1];
	struct policy_request request;
	/* the answer */
	int result;
	struct policy_mistake mistake;
	uint64_t now_ns;
	struct policy **found; /* owned, and each is used */
	uint32_t found_count;
	/* what was sent of it */
	uint32_t at, row; /* row of that policy: itself, its rules, its phases; of a service */
	struct services *services; /* used; NULL: none were asked for */
	uint32_t services_number;  /* of those that are named now */
	size_t document_at;
	uint32_t index;
	char detail[80];
};

static void query_answered(struct mail *mail, void *owner);

/* ---- on the control thread ---- */

static bool is_visible(const struct query *query, const struct policy *policy)
{
	return !policy->is_stale &&
	       (policy->tenant == query->request.tenant || policy->tenant == POLICY_EVERYBODYS ||
		query->request.tenant == POLICY_EVERYBODYS);
}

static int query_list(const struct policy_table *table, struct query *query)
{
	uint32_t count = 0;

	for (const struct policy *policy = table->policies; policy; policy = policy->next)
		count += is_visible(query, policy);
	query->found = calloc(count + 1, sizeof(struct policy *));
	if (!query->found)
		return -ENOMEM;
	for (struct policy *policy = table->policies; policy; policy = policy->next) {
		if (!is_visible(query, policy))
			continue;
		policy_use(policy);
		query->found[query->found_count++] = policy;
	}
	return 0;
}

static int query_one(struct policy_table *table, struct query *query, uint32_t verb)
{
	struct policy *found = NULL;
	int r = 0;

	query->found = calloc(1, sizeof(struct policy *));
	if (!query->found)
		return -ENOMEM;
	if (verb == DSEC_POLICY_CHECK) {
		r = policies_check(table, &query->request, &found, &query->mistake);
	} else if (verb == DSEC_POLICY_LOAD) {
		r = policies_load(table, &query->request, &found, &query->mistake);
	} else {
		found = policies_find(table, query->request.tenant, query->request.name);
		r = found ? 0 : -ENOENT;
		if (found)
			policy_use(found);
	}
	if (r == 0)
		query->found[query->found_count++] = found;
	return r;
}

static void query_services(const struct policy_table *table, struct query *query)
{
	query->services = table->services;
	if (query->services)
		services_use(query->services);
}

void policy_query_run(struct mail *mail, void *owner)
{
	struct query *query = container_of(mail, struct query, mail);
	struct control *control = owner;
	struct policy_table *table = control_policies(control);
	const uint32_t verb = query->part->request->body.policy.verb;

	query->now_ns = query->request.now_ns = io_clock_ns(control_io(control));
	query->services_number = table->services ? table->services->number : 0;
	if (verb == DSEC_POLICY_SERVICES)
		query_services(table, query);
	else if (verb == DSEC_POLICY_LIST)
		query->result = query_list(table, query);
	else if (verb == DSEC_POLICY_REMOVE)
		query->result = policies_remove(table, &query->request);
	else
		query->result = query_one(table, query, verb);
	if (query->result == 0 && verb == DSEC_POLICY_LOAD)
		log_info("policy loaded name=\"%s\" version=%u rules=%u",
			 query->found[0]->guard.name, query->found[0]->guard.number,
			 query->found[0]->guard.rule_count);
	if (query->result == 0 && verb == DSEC_POLICY_REMOVE)
		log_info("policy removed name=\"%s\"", query->name);
	policies_sweep(table);
	query->mail.deliver = query_answered;
	mail_send(control_io(control), query->part->shard->io, &query->mail);
}

_Static_assert((int)DSEC_POLICY_BPF_LSM == (int)GUARD_LEVEL_BPF_LSM, "levels are told as they are");
_Static_assert((int)DSEC_POLICY_SECCOMP == (int)GUARD_LEVEL_SECCOMP, "likewise");
_Static_assert((int)DSEC_POLICY_NAMESPACE == (int)GUARD_LEVEL_NAMESPACE, "likewise");

/* ---- rows ---- */

static struct dsec_wire_ref text_put(char *body, uint32_t *used, const char *text)
{
	uint32_t bytes = text ? (uint32_t)strlen(text) : 0;
	struct dsec_wire_ref ref = { *used, bytes };

	if (bytes)
		memcpy(body + *used, text, bytes);
	*used += bytes;
	return ref;
}

static const char *tenant_told(const struct query *query, const struct policy *policy)
{
	const struct part *part = query->part;

	return part->request->tenant->is_everyone && policy->tenant != POLICY_EVERYBODYS ?
		       part->shard->node->tenants[policy->tenant].name :
		       NULL;
}

static void row_emit(struct query *query, const struct policy *policy, uint32_t row)
{
	char body[sizeof(struct dsec_wire_policy_row) + 4 * (GUARD_RULE_TEXT_MAX + 1)];
	uint32_t used = sizeof(struct dsec_wire_policy_row);
	const uint32_t rules = policy->guard.rule_count;
	struct dsec_wire_policy_row wire = { .size = sizeof wire };
	struct emission e = { .kind = DSEC_EV_ROW,
			      .index = (uint16_t)query->index++,
			      .body = body };

	if (!row) {
		wire.what = DSEC_POLICY_ITSELF;
		wire.number = policy->guard.number;
		wire.flags = (policy->tenant == POLICY_EVERYBODYS ? DSEC_POLICY_READY_MADE : 0) |
			     (policy_is_dated(policy, query->services_number) ?
				      DSEC_POLICY_SERVICES_OLD :
				      0);
		wire.rules = rules;
		wire.levels = policy->unenforced;
		wire.users = __atomic_load_n(&policy->users, __ATOMIC_RELAXED) - 1; /* but ours */
		wire.age_ms = policy->loaded_ns ? (query->now_ns - policy->loaded_ns) / 1000000 :
						  UINT64_MAX;
		wire.document_bytes = policy->document_bytes;
		wire.name = text_put(body, &used, policy->guard.name);
		wire.text = text_put(body, &used, policy->extends);
		wire.tenant = text_put(body, &used, tenant_told(query, policy));
	} else if (row <= rules) {
		const struct guard_rule *rule = &policy->rules[row - 1];

		wire.what = DSEC_POLICY_RULE;
		wire.number = row;
		wire.flags = (rule->is_required ? DSEC_POLICY_REQUIRED : 0) |
			     (rule->is_audit ? DSEC_POLICY_AUDIT : 0);
		wire.levels = policy->levels[row - 1];
		wire.text = text_put(body, &used, rule->label);
	} else {
		wire.what = DSEC_POLICY_PHASE;
		wire.number = row - rules;
		wire.name = text_put(body, &used, policy->phases[row - rules - 1].name);
		wire.text = text_put(body, &used, policy->phases[row - rules - 1].policy);
	}
	memcpy(body, &wire, sizeof wire);
	e.bytes = used;
	part_emit(query->part, &e);
}

/* One place of a service; false: that was all. */
static bool service_emit(struct query *query)
{
	char body[sizeof(struct dsec_wire_policy_row) + SERVICE_NAME_MAX + GUARD_RULE_TEXT_MAX + 2];
	uint32_t used = sizeof(struct dsec_wire_policy_row);
	struct dsec_wire_policy_row wire = { .size = sizeof wire, .what = DSEC_POLICY_SERVICE };
	struct emission e = { .kind = DSEC_EV_ROW, .body = body };
	const struct service *service;

	if (!query->services || query->at == query->services->count)
		return false;
	service = &query->services->list[query->at];
	wire.number = query->row + 1;
	wire.name = text_put(body, &used, service->name);
	wire.text = text_put(body, &used, service->places[query->row]);
	memcpy(body, &wire, sizeof wire);
	e.index = (uint16_t)query->index++;
	e.bytes = used;
	part_emit(query->part, &e);
	if (++query->row == service->place_count) {
		query->row = 0;
		query->at++;
	}
	return true;
}

/* A piece of the document. */
static void document_emit(struct query *query, const struct policy *policy)
{
	size_t left = policy->document_bytes - query->document_at;
	struct emission e = {
		.kind = DSEC_EV_DATA,
		.offset = query->document_at,
		.stream = 1,
		.body = policy->document + query->document_at,
		.bytes = (uint32_t)(left < DATA_BYTES ? left : DATA_BYTES),
	};

	part_emit(query->part, &e);
	query->document_at += e.bytes;
}

/* ---- the answer ---- */

static void mistake_emit(struct query *query)
{
	char text[sizeof query->mistake.text + 32];
	int bytes = snprintf(text, sizeof text, "%u:%u %s", query->mistake.line,
			     query->mistake.column, query->mistake.text);
	struct emission e = {
		.kind = DSEC_EV_DATA, .stream = 2, .body = text, .bytes = (uint32_t)bytes
	};

	part_emit(query->part, &e);
	(void)snprintf(query->detail, sizeof query->detail, "%.79s", text); /* cut is fine */
}

static struct status query_status(struct query *query)
{
	struct status s = status_of_errno(query->result, "policy", "document");

	if (query->result != -EBADMSG && query->result != -ENOENT && query->result != -EPERM &&
	    query->result != -ESTALE && query->result != -ENOSPC) {
		if (query->result == -EIO) {
			s.step = "state";
			s.detail = "its file cannot be written or removed: see dsecd --state, and "
				   "its log";
		}
		return s; /* good, or not the caller's fault */
	}
	s.blame = DSEC_BLAME_CALLER;
	s.step = "name";
	switch (query->result) {
	case -EBADMSG:
		mistake_emit(query);
		s.code = DSEC_INVALID;
		s.step = "document";
		s.detail = query->detail;
		break;
	case -ENOENT:
		s.code = DSEC_ABSENT;
		s.detail = "no such policy";
		break;
	case -EPERM:
		s.code = DSEC_DENIED;
		s.detail = "it is ready-made: give yours another name, and let it extend this";
		break;
	case -ESTALE:
		s.code = DSEC_CONFLICT;
		s.step = "version";
		s.detail = "another version is there";
		break;
	default:
		s.step = "policies_max";
		s.detail = "a tenant has at most 64 policies of its own: remove one";
		break;
	}
	return s;
}

static void query_end(struct query *query, const struct status *status)
{
	struct emission final = { .kind = DSEC_EV_DONE, .status = *status };
	struct part *part = query->part;

	part->work = NULL;
	part_end(part, NULL, &final);
	for (uint32_t i = 0; i < query->found_count; i++)
		policy_put(query->found[i]);
	if (query->services)
		services_put(query->services);
	free(query->found);
	free(query);
}

static void rows_more(struct query *query);

static void rows_again(struct mail *mail, void *owner)
{
	(void)owner; /* the part's shard */
	rows_more(container_of(mail, struct part, mail)->work);
}

static bool row_next(struct query *query, uint32_t verb)
{
	const struct policy *policy;

	if (verb == DSEC_POLICY_SERVICES)
		return service_emit(query);
	if (query->at == query->found_count)
		return false;
	policy = query->found[query->at];
	if (verb == DSEC_POLICY_SHOW && query->document_at < policy->document_bytes) {
		document_emit(query, policy);
		return true;
	}
	row_emit(query, policy, query->row++);
	if (verb == DSEC_POLICY_LIST ||
	    query->row > policy->guard.rule_count + policy->phase_count) {
		query->row = 0;
		query->at++;
	}
	return true;
}

static void rows_more(struct query *query)
{
	const uint32_t verb = query->part->request->body.policy.verb;
	struct status ok = STATUS_OK;
	bool more = true;

	for (int i = 0; more && i < ROWS_PER_TURN; i++)
		more = row_next(query, verb);
	if (more && !query->part->unheard)
		part_again_with_room(query->part, rows_again);
	else
		query_end(query, &ok);
}

static void query_answered(struct mail *mail, void *owner)
{
	struct query *query = container_of(mail, struct query, mail);
	struct status s = query_status(query);

	(void)owner; /* the part's shard */
	if (s.code)
		query_end(query, &s);
	else
		rows_more(query);
}

/* ---- the op ---- */

static struct status policy_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "policy",
				.step = field,
				.detail = detail };
}

static struct status policy_check(struct query *query)
{
	const struct request *request = query->part->request;
	const struct dsec_wire_policy *body = &request->body.policy;
	const bool has_document = body->verb == DSEC_POLICY_CHECK || body->verb == DSEC_POLICY_LOAD;
	const bool is_list = body->verb == DSEC_POLICY_LIST || body->verb == DSEC_POLICY_SERVICES;
	const bool needs_name = body->verb == DSEC_POLICY_SHOW || body->verb == DSEC_POLICY_REMOVE;
	int r;

	if (body->verb < DSEC_POLICY_CHECK || body->verb > DSEC_POLICY_SERVICES)
		return policy_invalid("verb", -EINVAL,
				      "check, load, show, list, remove or services");
	if (body->flags || body->reserved0 || !wire_is_zero(body->reserved, sizeof body->reserved))
		return policy_invalid("reserved", -EINVAL, NULL);
	if (body->version && body->verb != DSEC_POLICY_LOAD && body->verb != DSEC_POLICY_REMOVE)
		return policy_invalid("version", -EINVAL, "of load and remove");
	r = wire_string(&request->payload, body->name, query->name, sizeof query->name);
	if (r >= 0 && (*query->name ? is_list || !policy_name_is_good(query->name) : needs_name))
		r = -EINVAL;
	if (r < 0)
		return policy_invalid("name", r,
				      is_list ? "a list names no policy" :
						"1 to 63 of a-z 0-9 and - inside");
	r = wire_bytes(&request->payload, body->document, &query->request.document);
	query->request.document_bytes = body->document.bytes;
	if (r >= 0 && has_document != (body->document.bytes != 0))
		r = -EINVAL;
	if (r >= 0 && body->document.bytes > POLICY_DOCUMENT_BYTES_MAX)
		r = -E2BIG;
	if (r < 0)
		return policy_invalid("document", r, "of check and load, at most 65,536 bytes");
	if (request->tenant->is_everyone && (has_document || body->verb == DSEC_POLICY_REMOVE))
		return (struct status){ .code = DSEC_DENIED,
					.blame = DSEC_BLAME_CALLER,
					.table = "policy",
					.step = "tenant",
					.detail = "for everyone one can look: name a tenant" };
	return STATUS_OK;
}

void policy_part(struct part *part)
{
	struct query *query = calloc(1, sizeof *query);
	struct tenant *tenant = part->request->tenant;
	struct status s;

	if (!query) {
		s = status_of_errno(-ENOMEM, "policy", "request");
		part_end(part, &s, NULL);
		return;
	}
	query->part = part;
	s = policy_check(query);
	if (s.code) {
		free(query);
		part_end(part, &s, NULL);
		return;
	}
	query->request.tenant = tenant->is_everyone ? POLICY_EVERYBODYS : tenant->index;
	query->request.name = query->name;
	query->request.version = part->request->body.policy.version;
	part->work = query;
	query->mail.deliver = policy_query_run;
	mail_send(part->shard->io, control_io(part->shard->node->control), &query->mail);
}
