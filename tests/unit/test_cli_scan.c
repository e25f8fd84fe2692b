/* What configuration of package managers says of mirrors, and what hostile files come to. */
#include "sdk/cli/scan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void printed_is(struct scan *scan, const char *expected)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *file = open_memstream(&text, &bytes);

	cr_assert(file);
	scan_print(scan, file);
	(void)fclose(file);
	cr_expect_str_eq(text, expected);
	free(text);
}

static void take(struct scan *scan, enum scan_kind kind, const char *text)
{
	scan_text(scan, kind, text, strlen(text));
}

Test(cli_scan, mirrors_are_found_in_the_files_of_each_package_manager)
{
	struct scan *scan = calloc(1, sizeof(*scan));

	take(scan, SCAN_APT,
	     "# deb http://old.example/debian x\n"
	     "deb [signed-by=/x] http://Deb.Example/debian bookworm main\n"
	     "Types: deb\nURIs: https://deb.example:8443/a http://192.0.2.7/b\n");
	take(scan, SCAN_PIP,
	     "[global]\nindex-url = https://user:secret@pypi.example/simple\n"
	     "extra-index-url = https://a@b@files.example/simple\n");
	take(scan, SCAN_NPM, "registry=https://npm.example/\n;x=https://no.example\n");
	take(scan, SCAN_CARGO, "registry = \"sparse+https://crates.example/index/\"\n");
	take(scan, SCAN_GO, "GOPROXY=https://go.example,direct\n");
	take(scan, SCAN_GIT,
	     "[url \"https://git.example/\"]\n"
	     "\tinsteadOf = https://far.example/\n[url \"git+ssh://v@v.example:22\"]");
	printed_is(scan, "- name: apt-8443\n  protocol: https\n  hosts: [deb.example]\n"
			 "  ports: [8443]\n"
			 "- name: apt-http\n  protocol: http\n  hosts: [deb.example]\n"
			 "  addresses: [192.0.2.7]\n"
			 "- name: pip\n  protocol: https\n  hosts: [files.example, pypi.example]\n"
			 "- name: npm\n  protocol: https\n  hosts: [npm.example]\n"
			 "- name: cargo\n  protocol: https\n  hosts: [crates.example]\n"
			 "- name: go\n  protocol: https\n  hosts: [go.example]\n"
			 "- name: git\n  protocol: https\n  hosts: [git.example]\n"
			 "- name: git-ssh-22\n  protocol: ssh\n  hosts: [v.example]\n"
			 "  ports: [22]\n");
	free(scan);
}

Test(cli_scan, what_is_no_host_is_passed_over_and_what_is_too_much_is_counted)
{
	struct scan *scan = calloc(1, sizeof(*scan));
	char *text = malloc(SCAN_FILE_BYTES * 2);
	char line[64];

	take(scan, SCAN_PIP,
	     "https://\nhttps://x\nhttps://-a.example\nhttps://a..example\n"
	     "https://a.example.\nhttps://a.example:0/\nhttps://a.example:99999\n"
	     "https://a.example:53\nhttps://[::1]/\nhttps://1.2.3\nftp://f.example\n"
	     "https://a.ex\033[31mample/\nhttps://a.example\"]\nhttps://{x}.example\n"
	     "://a.example\nhttps:///a.example\nhttps://@/\nhttps://$(x).example\n");
	printed_is(scan, "- name: pip\n  protocol: https\n  hosts: [a.example]\n");
	scan->count = 0;
	memset(text, 'a', SCAN_FILE_BYTES * 2);
	memcpy(text, "https://", 8);
	scan_text(scan, SCAN_PIP, text, SCAN_FILE_BYTES * 2);
	memset(text, 0, SCAN_FILE_BYTES);
	scan_text(scan, SCAN_PIP, text, SCAN_FILE_BYTES);
	memset(text, '\n', SCAN_FILE_BYTES);
	scan_text(scan, SCAN_PIP, text, SCAN_FILE_BYTES);
	cr_expect_eq(scan->count, 0);
	for (int i = 0; i < SCAN_PLACES_MAX + 7; i++) {
		(void)snprintf(line, sizeof(line), "https://h%d.example\n", i);
		take(scan, SCAN_PIP, line);
		take(scan, SCAN_PIP, line);
	}
	cr_expect_eq(scan->count, SCAN_PLACES_MAX);
	cr_expect_geq(scan->left_out, 7);
	free(text);
	free(scan);
}
