#include "loadtest/report_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iostream>

#include "loadtest/load_error.h"
#include "loadtest/report_html.h"
#include "loadtest/summary.h"

namespace pgmqtt::loadtest {
namespace {

constexpr const char* kStandardOutput = "-";

void check_file(const char* option, const std::string& path) {
    std::string what = std::string(option) + " " + path;
    struct stat status {};
    bool is_there = stat(path.c_str(), &status) == 0;
    if (is_there && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        // Opening a pipe would wait for its reader, and tell it of an end when it is closed.
        if (access(path.c_str(), W_OK) != 0) throw_errno(what, "name another file");
        return;
    }
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) throw_errno(what, "name another file, or make its folder");
    close(fd);
    if (!is_there) unlink(path.c_str());
}

std::string write_json(const Options& options, const RunResult& result) {
    std::string line = to_json(result) + "\n";
    if (options.json == kStandardOutput)
        return std::cout << line << std::flush ? "" : "standard output cannot be written";
    std::ofstream file(options.json, std::ios::app);
    if (file << line << std::flush) return {};
    return "cannot write " + options.json + ": " + std::generic_category().message(errno);
}

}  // namespace

void check_report_files(const Options& options) {
    if (!options.json.empty() && options.json != kStandardOutput)
        check_file("--json", options.json);
    if (options.html == kStandardOutput)
        throw LoadError("--html -: the page goes to a file; name one");
    if (!options.html.empty()) check_file("--html", options.html);
    if (!options.html.empty() && options.html == options.json)
        throw LoadError("--json and --html are the same file; name two");
}

void write_report_files(const Options& options, const RunResult& result) {
    std::string fault;
    if (!options.json.empty()) fault = write_json(options, result);
    if (!options.html.empty())
        if (std::string of_html = write_html(result, options.html); !of_html.empty())
            fault += (fault.empty() ? "" : "; ") + of_html;
    if (!fault.empty()) throw LoadError(fault);
}

}  // namespace pgmqtt::loadtest
