/* Claims about what is a task's own: paths of proxies, and hosts. */
#include "engine/integrity/own.h"

#include <stdint.h>
#include <string.h>

#include <criterion/criterion.h>

static struct own_text text(const char *of)
{
	return (struct own_text){ of, strlen(of) };
}

static bool has(const char *own, const char *path)
{
	return own_has_path(text(own), text(path));
}

Test(own, a_repository_is_found_wherever_a_proxy_has_it)
{
	static const char own[] = "git.example/Owner/name";
	static const char *const fetched[] = {
		"git.example/Owner/name",
		"/git.example/!owner/name/@v/list",
		"/mod/git.example/owner/name/@v/v1.2.3.zip",
		"https://proxy.example/git.example/owner/name@v1.2.3",
		"git.example/owner/name.git/info/refs?service=git-upload-pack",
		"//git.example/./owner//name/",
		"/git.example%2fowner%2Fna%6De/v2/@latest",
		"GIT.EXAMPLE/OWNER/NAME",
	};
	static const char *const others[] = {
		"",
		"/",
		"git.example/owner",
		"git.example/owner/names",
		"git.example/owner/name-fork/@v/list",
		"xgit.example/owner/name",
		"git.example/other/name",
		"q.example/?git.example/owner/name",
		"git.example/owner/na%zze",
	};

	for (size_t i = 0; i < sizeof fetched / sizeof *fetched; i++)
		cr_expect(has(own, fetched[i]), "%s", fetched[i]);
	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		cr_expect_not(has(own, others[i]), "%s", others[i]);
}

Test(own, several_are_parted_by_spaces_and_commas_and_written_as_people_do)
{
	static const char own[] = " https://git.example/a/b.git, @scope/package  requests,";

	cr_expect(has(own, "/git.example/a/b/@v/list"));
	cr_expect(has(own, "/npm/@scope/package/-/package-1.0.tgz"));
	cr_expect(has(own, "/npm/@scope%2fpackage"));
	cr_expect(has(own, "/simple/requests/"));
	cr_expect_not(has(own, "/simple/requests-oauth/"));
	cr_expect_not(has(own, "/npm/@other/package"));
	cr_expect_not(has("", "/anything"));
	cr_expect_not(has(" , / . ", "/anything/./"));
}

Test(own, a_host_is_its_own_and_all_below_and_one_with_a_path_says_nothing)
{
	const struct own_text own = text("git.example/owner/name docs.name.example word");

	cr_expect(own_has_host(own, "docs.name.example"));
	cr_expect(own_has_host(own, "api.docs.name.example"));
	cr_expect(own_has_host(own, "Docs.NAME.example"));
	cr_expect_not(own_has_host(own, "xdocs.name.example"));
	cr_expect_not(own_has_host(own, "name.example"));
	cr_expect_not(own_has_host(own, "git.example"));
	cr_expect_not(own_has_host(own, "a.word"));
	cr_expect_not(own_has_host(own, ""));
	cr_expect_not(own_has_host(text(""), "docs.name.example"));
}

Test(own, any_bytes_of_any_length_are_taken)
{
	char bytes[3 * OWN_FETCH_BYTES_MAX];
	uint32_t seed = 1;

	for (int round = 0; round < 2000; round++) {
		size_t own_bytes = (seed >> 8) % sizeof bytes;

		for (size_t i = 0; i < sizeof bytes; i++) {
			seed = seed * 1664525 + 1013904223;
			bytes[i] = round % 2 ? "/.@%!,a git"[(seed >> 16) % 11] :
					       (char)(seed >> 16);
		}
		(void)own_has_path((struct own_text){ bytes, own_bytes },
				   (struct own_text){ bytes + own_bytes,
						      sizeof bytes - own_bytes });
		bytes[sizeof bytes - 1] = '\0';
		(void)own_has_host((struct own_text){ bytes, own_bytes }, bytes + own_bytes);
	}
	memset(bytes, '/', sizeof bytes);
	cr_expect_not(own_has_path(text("a"), (struct own_text){ bytes, sizeof bytes }));
}
