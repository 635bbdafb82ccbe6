#include "loadtest/options.h"

#include <algorithm>
#include <optional>
#include <random>

#include "loadtest/load_error.h"
#include "loadtest/mode.h"
#include "loadtest/option_table.h"

namespace pgmqtt::loadtest {
namespace {

// --name value, or --name=value.
class Arguments {
   public:
    // The first is the mode.
    explicit Arguments(const std::vector<std::string>& all) : all_(all) {}

    bool next() {
        if (++at_ >= all_.size()) return false;
        name_ = all_[at_];
        value_.reset();
        size_t equals = name_.find('=');
        if (name_.starts_with("--") && equals != std::string::npos) {
            value_ = name_.substr(equals + 1);
            name_.resize(equals);
        }
        return true;
    }
    const std::string& name() const { return name_; }

    std::string value_of(const Option& option) {
        if (option.is_flag()) {
            if (value_) throw LoadError(name_ + " takes no value; leave =" + *value_ + " out");
            return {};
        }
        if (value_) return *value_;
        if (at_ + 1 == all_.size()) throw LoadError(name_ + " needs " + option.argument);
        return all_[++at_];
    }

    std::vector<std::string> rest() const {
        return {all_.begin() + static_cast<ptrdiff_t>(at_) + 1, all_.end()};
    }

   private:
    const std::vector<std::string>& all_;
    size_t at_ = 0;
    std::string name_;
    std::optional<std::string> value_;
};

void check(Options& options) {
    bool loops = options.mode == "closedloop" || options.mode == "openloop" ||
                 options.mode == "soak" || options.mode == "fanin" || options.mode == "fanout";
    if (loops && options.subscribers == 0) options.topology = Topology::kNone;
    if (loops && options.topology == Topology::kPairs &&
        options.subscribers % options.publishers != 0)
        throw LoadError("--topology pairs wants --subscribers to be a multiple of --publishers");
    if (options.mode == "openloop" && options.rate <= 0)
        throw LoadError("openloop needs --rate, messages a second; closedloop finds the highest");
    if (!options.password.empty() && options.username.empty() && options.protocol < 5)
        throw LoadError("--password needs --username with --protocol 4");
    if (options.label.empty()) options.label = options.mode;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
    Options options;
    if (arguments.empty()) throw LoadError("give a mode; see loadtest --help");
    options.mode = arguments[0];
    const Mode* mode = find_mode(options.mode);
    if (mode == nullptr)
        throw LoadError("there is no mode " + options.mode + "; see loadtest --help");
    mode->preset(options);
    std::random_device random;
    options.run = random();
    Arguments left(arguments);
    std::vector<Option> known = options_of(options.mode);
    std::vector<std::string> passed_on;
    while (left.next()) {
        if (left.name() == "--" && options.mode == "compare") {
            options.compared = left.rest();
            if (!options.compared.empty())
                options.compared.insert(options.compared.begin() + 1, passed_on.begin(),
                                        passed_on.end());
            break;
        }
        auto option = std::find_if(known.begin(), known.end(),
                                   [&](const Option& o) { return left.name() == o.name; });
        if (option == known.end())
            throw LoadError(left.name() + " is no option of " + options.mode + "; see loadtest " +
                            options.mode + " --help");
        std::string value = left.value_of(*option);
        if (options.mode == "compare" && is_of_workload(*option)) {
            passed_on.emplace_back(option->name);
            if (!option->is_flag()) passed_on.push_back(value);
        }
        option->set(options, value);
    }
    check(options);
    return options;
}

namespace {

// Its text ends with the default, "(0)", unless it has none; a mode may preset another.
std::string text_for(const Option& option, const Mode& mode) {
    Options preset;
    std::string general = "(" + option.get(preset) + ")";
    mode.preset(preset);
    std::string text = option.text;
    if (text.ends_with(general))
        text.replace(text.size() - general.size(), general.size(), "(" + option.get(preset) + ")");
    return text;
}

}  // namespace

std::string help_text(const std::string& mode) {
    std::string text;
    const Mode* wanted = find_mode(mode);
    if (wanted == nullptr) {
        text = "loadtest MODE [options]     loadtest MODE --help lists the options\n\n";
        for (const Mode& each : all_modes()) {
            std::string name = each.name;
            name.resize(13, ' ');
            text += "  " + name + each.text + "\n";
        }
        return text;
    }
    text = "loadtest " + mode + " [options]" +
           (mode == "compare" ? " -- MODE [options of MODE]" : "") + "\n" + wanted->text + "\n\n";
    for (const Option& option : options_of(mode)) {
        std::string name = std::string(option.name) + " " + option.argument;
        name.resize(std::max<size_t>(30, name.size() + 1), ' ');
        text += "  " + name + text_for(option, *wanted) + "\n";
    }
    return text;
}

std::vector<std::pair<std::string, std::string>> describe(const Options& options) {
    std::vector<std::pair<std::string, std::string>> described;
    for (const Option& option : options_of(options.mode)) {
        std::string name = std::string(option.name).substr(2);
        if (name == "password" || name == "label" || name == "json" || name == "html" ||
            name == "quiet" || name == "clean")
            continue;
        std::string value = option.get(options);
        if (name == "window") value = std::to_string(options.end_to_end_window());
        if (name == "ack-window") value = std::to_string(options.acknowledgement_window());
        if (name == "pg" && !value.empty()) value = "given";  // it may hold a password
        described.emplace_back(name, value);
    }
    return described;
}

}  // namespace pgmqtt::loadtest
