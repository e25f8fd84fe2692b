/*
 * Policies as profiles of AppArmor: all is allowed but what the policy's rules deny. Called by
 * guard_apparmor.c and by tests. Must hold: no byte of a path means anything but itself; a deny is
 * quiet, so that nobody inside fills the host's log; nothing gives back what is denied, since a
 * deny counts whatever else allows.
 */
#include "bpf/apparmor_profile.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/evp.h>

#include "bpf/guard_policy.h"
#include "engine/base/cleanup.h"

enum { DIGEST_BYTES = 32, KEPT_BITS = GUARD_FILE_WRITE | GUARD_FILE_REPLACE };

/*
 * Families as apparmor_parser names them. Unix sockets are not here: a profile would also hold
 * those that a program was given, and the file helper is given one.
 */
static const char *const families[] = {
	[AF_INET] = "inet",
	[AF_AX25] = "ax25",
	[AF_IPX] = "ipx",
	[AF_APPLETALK] = "appletalk",
	[AF_NETROM] = "netrom",
	[AF_BRIDGE] = "bridge",
	[AF_ATMPVC] = "atmpvc",
	[AF_X25] = "x25",
	[AF_INET6] = "inet6",
	[AF_ROSE] = "rose",
	[AF_NETBEUI] = "netbeui",
	[AF_SECURITY] = "security",
	[AF_KEY] = "key",
	[AF_NETLINK] = "netlink",
	[AF_PACKET] = "packet",
	[AF_ASH] = "ash",
	[AF_ECONET] = "econet",
	[AF_ATMSVC] = "atmsvc",
	[AF_RDS] = "rds",
	[AF_SNA] = "sna",
	[AF_IRDA] = "irda",
	[AF_PPPOX] = "pppox",
	[AF_WANPIPE] = "wanpipe",
	[AF_LLC] = "llc",
	[AF_IB] = "ib",
	[AF_MPLS] = "mpls",
	[AF_CAN] = "can",
	[AF_TIPC] = "tipc",
	[AF_BLUETOOTH] = "bluetooth",
	[AF_IUCV] = "iucv",
	[AF_RXRPC] = "rxrpc",
	[AF_ISDN] = "isdn",
	[AF_PHONET] = "phonet",
	[AF_IEEE802154] = "ieee802154",
	[AF_CAIF] = "caif",
	[AF_ALG] = "alg",
	[AF_NFC] = "nfc",
	[AF_VSOCK] = "vsock",
	[AF_KCM] = "kcm",
	[AF_QIPCRTR] = "qipcrtr",
	[AF_SMC] = "smc",
	[AF_XDP] = "xdp",
};

/* ---- what a profile holds ---- */

/* AppArmor is asked for names as the kernel has them, in which these are not. */
static bool path_is_plain(const char *path)
{
	if (!path || *path != '/')
		return false;
	for (; *path; path += strcspn(path, "/")) {
		path += strspn(path, "/");
		if ((path[0] == '.' && (!path[1] || path[1] == '/')) ||
		    (path[0] == '.' && path[1] == '.' && (!path[2] || path[2] == '/')))
			return false;
	}
	return true;
}

static bool rule_fits(const struct guard_rule *rule)
{
	switch ((enum guard_rule_kind)rule->kind) {
	case GUARD_RULE_FILE:
		return rule->bits & (KEPT_BITS | GUARD_FILE_EXECUTE | GUARD_FILE_HIDE) &&
		       path_is_plain(rule->text);
	case GUARD_RULE_FAMILY:
		return rule->value < sizeof families / sizeof *families && families[rule->value];
	case GUARD_RULE_PROCESS:
		return rule->value == GUARD_PROCESS_PTRACE ||
		       rule->value == GUARD_PROCESS_PTRACE_OUTSIDE ||
		       rule->value == GUARD_PROCESS_SIGNAL_OUTSIDE ||
		       rule->value == GUARD_PROCESS_MOUNT;
	default:
		return false;
	}
}

/* What is hidden is covered, and what the filter refuses ends there: no LSM program sees either. */
static bool is_told(const struct profile_scope *scope, const struct guard_rule *rule)
{
	if (!scope->lsm_tells || (rule->kind == GUARD_RULE_FILE && rule->bits & GUARD_FILE_HIDE))
		return false;
	return !scope->is_refused || !scope->is_refused(rule);
}

static bool is_held(const struct profile_scope *scope, const struct guard_rule *rule)
{
	return !rule->is_audit && rule_fits(rule) && !is_told(scope, rule);
}

/* Of the paths up to this rule; those after the first that has no room have none, either. */
static bool paths_fit(const struct profile_scope *scope, const struct guard_policy *policy,
		      uint32_t at)
{
	size_t bytes = 0;

	for (uint32_t i = 0; i <= at && bytes <= PROFILE_PATHS_BYTES_MAX; i++)
		if (policy->rules[i].kind == GUARD_RULE_FILE && is_held(scope, &policy->rules[i]))
			bytes += strlen(policy->rules[i].text);
	return bytes <= PROFILE_PATHS_BYTES_MAX;
}

bool profile_holds(const struct profile_scope *scope, const struct guard_policy *policy,
		   uint32_t at)
{
	return is_held(scope, &policy->rules[at]) &&
	       (policy->rules[at].kind != GUARD_RULE_FILE || paths_fit(scope, policy, at));
}

/* ---- its text ---- */

/* All but letters, digits and these by number, which the parser takes literally. */
static void name_put(FILE *text, const char *name, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++) {
		const unsigned char c = (unsigned char)name[i];

		if ((c < 0x80 && isalnum(c)) || (c && strchr("_-.", c)))
			(void)fputc(c, text);
		else
			(void)fprintf(text, "\\%03o", c);
	}
}

/* The root is "". */
static void path_put(FILE *text, const char *path)
{
	for (;;) {
		size_t bytes;

		path += strspn(path, "/");
		bytes = strcspn(path, "/");
		if (!bytes)
			return;
		(void)fputc('/', text);
		name_put(text, path, bytes);
		path += bytes;
	}
}

/* A file is /a, a folder /a/, and what is below it begins with that. */
static void tree_put(FILE *text, const struct guard_rule *rule)
{
	(void)fputc('"', text);
	path_put(text, rule->text);
	if (!rule->text[strspn(rule->text, "/")])
		(void)fputs("/{,**}\"", text);
	else
		(void)fputs(rule->bits & GUARD_FILE_SUBTREE ? "{,/,/**}\"" : "{,/}\"", text);
}

static void files_put(FILE *text, const struct guard_rule *rule)
{
	if (rule->bits & (KEPT_BITS | GUARD_FILE_HIDE)) {
		(void)fputs("\tdeny ", text);
		tree_put(text, rule);
		(void)fputs(" wl,\n\tdeny link \"/{,**}\" -> ", text);
		tree_put(text, rule);
		(void)fputs(",\n", text);
	}
	if (rule->bits & (GUARD_FILE_EXECUTE | GUARD_FILE_HIDE)) {
		(void)fputs("\tdeny ", text);
		tree_put(text, rule);
		(void)fputs(" mx,\n", text);
	}
	/* The folder itself may be listed: what is seen of it is its cover. */
	if (rule->bits & GUARD_FILE_HIDE) {
		(void)fputs("\tdeny \"", text);
		path_put(text, rule->text);
		(void)fputs("{,/?**}\" rk,\n", text);
	}
}

static void process_put(FILE *text, const struct guard_rule *rule)
{
	if (rule->value == GUARD_PROCESS_MOUNT)
		(void)fputs("\tdeny mount,\n\tdeny remount,\n\tdeny umount,\n\tdeny pivot_root,\n",
			    text);
	if (rule->value == GUARD_PROCESS_PTRACE)
		(void)fputs("\tdeny ptrace (trace),\n", text);
}

static bool has_process(const struct profile_scope *scope, const struct guard_policy *policy,
			enum guard_process what)
{
	for (uint32_t i = 0; i < policy->rule_count; i++)
		if (policy->rules[i].kind == GUARD_RULE_PROCESS &&
		    policy->rules[i].value == (uint32_t)what && profile_holds(scope, policy, i))
			return true;
	return false;
}

/*
 * To leave a profile needs change_profile, which is denied. Inside are all profiles of the
 * instance, since a sandbox has more than one after a change of phase; signals and tracing from
 * outside are the affair of who sends them.
 */
static void frame_put(FILE *text, const struct profile_scope *scope,
		      const struct guard_policy *policy)
{
	char inside[PROFILE_NAME_BYTES];

	(void)snprintf(inside, sizeof inside, " peer=\"dsec-%s-*\"", scope->instance);
	(void)fprintf(text,
		      "\t\"/{,**}\" mrwlkix,\n\tcapability,\n\tnetwork,\n\tunix,\n\tdbus,\n"
		      "\tmount,\n\tremount,\n\tumount,\n\tpivot_root,\n"
		      "\tdeny change_profile,\n"
		      "\tsignal (receive),\n\tsignal (send)%s,\n"
		      "\tptrace (readby, tracedby),\n\tptrace (read, trace)%s,\n",
		      has_process(scope, policy, GUARD_PROCESS_SIGNAL_OUTSIDE) ? inside : "",
		      has_process(scope, policy, GUARD_PROCESS_PTRACE_OUTSIDE) ? inside : "");
}

/* How many rules are in it. */
static uint32_t body_put(FILE *text, const struct profile_scope *scope,
			 const struct guard_policy *policy)
{
	uint32_t count = 0;

	frame_put(text, scope, policy);
	for (uint32_t i = 0; i < policy->rule_count; i++) {
		const struct guard_rule *rule = &policy->rules[i];

		if (!profile_holds(scope, policy, i))
			continue;
		count++;
		if (rule->kind == GUARD_RULE_FILE)
			files_put(text, rule);
		else if (rule->kind == GUARD_RULE_FAMILY)
			(void)fprintf(text, "\tdeny network %s,\n", families[rule->value]);
		else
			process_put(text, rule);
	}
	return count;
}

static int name_make(const struct profile_scope *scope, const char *body, size_t bytes,
		     char ret[static PROFILE_NAME_BYTES])
{
	unsigned char digest[DIGEST_BYTES];
	unsigned digest_bytes = 0;
	int used = snprintf(ret, PROFILE_NAME_BYTES, "dsec-%s-", scope->instance);

	if (used + PROFILE_DIGEST_DIGITS >= PROFILE_NAME_BYTES)
		return -ENAMETOOLONG;
	if (EVP_Digest(body, bytes, digest, &digest_bytes, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	for (int i = 0; i < PROFILE_DIGEST_DIGITS / 2; i++, used += 2)
		(void)snprintf(ret + used, 3, "%02x", digest[i]);
	return 0;
}

static int body_make(const struct profile_scope *scope, const struct guard_policy *policy,
		     char **ret, size_t *ret_bytes, uint32_t *ret_count)
{
	FILE *text = open_memstream(ret, ret_bytes);
	bool failed;

	if (!text)
		return -ENOMEM;
	(void)fprintf(text, "# policy %u %s\n", policy->number, policy->name);
	*ret_count = body_put(text, scope, policy);
	failed = ferror(text);
	return fclose(text) < 0 || failed ? -ENOMEM : 0;
}

int profile_write(const struct profile_scope *scope, const struct guard_policy *policy,
		  struct profile *ret)
{
	struct profile profile = { 0 };
	auto_free char *body = NULL;
	size_t bytes = 0;
	uint32_t count = 0;
	int r = body_make(scope, policy, &body, &bytes, &count);

	if (r < 0)
		return r;
	if (count == 0) {
		*ret = profile;
		return 0;
	}
	r = name_make(scope, body, bytes, profile.name);
	if (r < 0)
		return r;
	r = asprintf(&profile.text,
		     "abi <abi/3.0>,\n"
		     "profile \"%s\" flags=(attach_disconnected, mediate_deleted) {\n%s}\n",
		     profile.name, body);
	if (r < 0)
		return -ENOMEM;
	profile.bytes = (size_t)r;
	*ret = profile;
	return 0;
}

bool profile_name_is_of(const char *name, const char *instance)
{
	const size_t bytes = strlen(instance);

	return strncmp(name, "dsec-", 5) == 0 && strncmp(name + 5, instance, bytes) == 0 &&
	       name[5 + bytes] == '-' && strlen(name + 6 + bytes) == PROFILE_DIGEST_DIGITS &&
	       strspn(name + 6 + bytes, "0123456789abcdef") == PROFILE_DIGEST_DIGITS;
}
