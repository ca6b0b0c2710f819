"""The rules in English: title and advice."""

ENGLISH = {
    "AB001": ("Hidden characters", "Read the decoded text; if nobody can explain it, refuse."),
    "AB002": (
        "Text direction is switched",
        "Read the line in its stored order before trusting it.",
    ),
    "AB003": ("Letters of two alphabets in one word", "Check that the word is what it looks like."),
    "AB004": (
        "Asks the model to drop its instructions",
        "A skill has no reason to speak about other instructions; refuse unless it only quotes.",
    ),
    "AB005": (
        "Asks the model in Chinese to drop its instructions",
        "A skill has no reason to speak about other instructions; refuse unless it only quotes.",
    ),
    "AB006": ("Asks to keep something from the user", "Find out what is kept from you, and why."),
    "AB007": (
        "Instructions in an invisible comment",
        "People do not see comments and models do; read it and remove it.",
    ),
    "AB008": (
        "Imitates the marks of system messages",
        "Only the application writes such marks; refuse unless it documents them.",
    ),
    "AB009": (
        "Asks to skip confirmation",
        "Keep your permission rules; a skill cannot approve itself.",
    ),
    "AB010": (
        "Encoded text that reads as instructions",
        "Read the decoded text before installing.",
    ),
    "AB011": (
        "Downloads a program and runs it",
        "Fetch the file, read it, and run it from disk; pin it by hash.",
    ),
    "AB012": (
        "Downloads a program and runs it in PowerShell",
        "Fetch the file, read it, and run it from disk; pin it by hash.",
    ),
    "AB013": (
        "Installs a package from an address or a foreign registry",
        "Install from your own registry, with a version.",
    ),
    "AB014": (
        "Follows instructions that lie elsewhere",
        "What is fetched can change after you read it; have the text put into the skill.",
    ),
    "AB015": (
        "Installs packages without a version",
        "Pin versions, so that tomorrow equals today.",
    ),
    "AB016": (
        "Demands a foreign program before it works",
        "Do not run programs a skill asks for unless you know their maker.",
    ),
    "AB017": (
        "Touches files with credentials",
        "Make sure that the skill needs them; the sandbox can keep them out of reach.",
    ),
    "AB018": (
        "Touches browser stores, key chains or wallets",
        "Hardly any skill needs these; find out why.",
    ),
    "AB019": ("Gathers the whole environment", "Give it only the variables it needs."),
    "AB020": ("Asks the cloud's metadata address", "Close this address; it hands out credentials."),
    "AB021": ("Reads secrets and sends them away", "Do not install it."),
    "AB022": (
        "Talks to a drop box, webhook or tunnel",
        "Make sure that the address is yours and see what is sent.",
    ),
    "AB023": ("Carries data out in DNS questions", "Do not install it without knowing the reason."),
    "AB024": ("A secret is written into it", "Revoke the secret, and keep it out of the skill."),
    "AB025": ("Uses an address that hides who owns it", "Find out who is behind it."),
    "AB026": (
        "Asks the model to send data to an address",
        "Make sure that you want this data to leave, and who receives it.",
    ),
    "AB027": (
        "Asks for secrets in the open",
        "Keep secrets out of prompts, files and output; use a secret store.",
    ),
    "AB028": ("Runs text as a program", "See where the text comes from."),
    "AB029": ("Calls things by made-up names", "See which function is really called."),
    "AB030": ("Decodes text and runs it", "Decode it, read it; usually: refuse."),
    "AB031": (
        "A program is made unreadable",
        "Ask for the source; do not run what cannot be read.",
    ),
    "AB032": ("Opens a shell for somebody else", "Do not install it."),
    "AB033": ("Starts itself again later", "Skills need no scheduled jobs; see what is started."),
    "AB034": ("Changes the shell's start files", "Make such changes yourself, if you want them."),
    "AB035": ("Asks for higher rights", "Run it without them; see what fails."),
    "AB036": ("Switches protection off", "Leave protection on, and see what fails."),
    "AB037": ("Exhausts the machine", "Do not install it."),
    "AB038": ("Mines currency", "Do not install it."),
    "AB039": ("Destroys data", "See what exactly is deleted, and that nothing else can be."),
    "AB040": (
        "Ships bytecode",
        "Ask for the source; bytecode can differ from what lies beside it.",
    ),
    "AB041": ("Ships a program in machine code", "Build it from source, or get it from its maker."),
    "AB042": ("An archive with programs inside", "Unpack it by hand and look at it."),
    "AB043": ("A file is not what its name says", "See what it really is before opening it."),
    "AB044": ("Text is pushed out of sight", "Read behind the blank part."),
    "AB045": ("A hidden program", "See why it is hidden."),
    "AB046": ("A program outside of scripts/", "Have it moved to where people look."),
    "AB047": ("Loads data that can run", "Use a format that holds data only, such as JSON."),
    "AB048": (
        "Works on the side and hides its failures",
        "See what is done there that its task does not need.",
    ),
    "AB049": (
        "Watches people or looks around the machine",
        "Find out what it needs to know that for.",
    ),
    "AB050": ("Asks for every use of a tool", "Grant only the commands it needs."),
    "AB051": ("Brings hooks", "Hooks run without being called; read each command."),
    "AB052": ("Runs commands while it is read", "Read each command before trusting the skill."),
    "AB053": (
        "Changes the instructions or settings of agents",
        "Such changes outlive the skill; make them yourself, if you want them.",
    ),
    "AB054": ("Adds or changes MCP servers", "Add servers yourself, after looking at them."),
    "AB055": ("Wants to be used for everything", "Have the description say when it is of use."),
    "AB056": (
        "Wants to be remembered in later sessions",
        "See what is written to memory; it outlives the skill.",
    ),
    "AB057": (
        "Acts differently by time or place",
        "See what it does when nobody is testing it.",
    ),
    "AB058": ("A link leads elsewhere than it says", "Look at the address, not at its text."),
    "AB059": (
        "Puts something into results that nobody asked for",
        "Compare what it hands over with what you asked for.",
    ),
    "AB060": ("A description stuffed with keywords", "Have it rewritten in sentences."),
    "AB061": ("Describes itself as another skill does", "See which of the two you want; keep one."),
    "AB062": ("A name like another skill's", "Make sure that it is the one you mean."),
    "AB063": ("Claims to come from a vendor", "Check with the vendor, not with the skill."),
    "AB064": ("Does what its description does not say", "Have the description say what it does."),
    "AB065": (
        "Sends things elsewhere and gives a reason for it",
        "Ask whether the task needs this, and who receives it.",
    ),
    "AB066": (
        "Advises to give up protection",
        "Grant the least that works, and leave protection on.",
    ),
    "AB067": (
        "Takes foreign text for instructions",
        "Have it treat what it reads as data.",
    ),
    "AB068": (
        "Leads traffic through a third party",
        "Make sure that you know and trust whoever stands between.",
    ),
    "AB069": (
        "Several small signs together",
        "Look at each; together they are unusual.",
    ),
    "AB070": (
        "Not everything was looked at",
        "Look at the rest by hand, or make the skill smaller.",
    ),
    "AB071": (
        "Tells of results that are not so",
        "Check results yourself; a failure that is kept back is worse than a failure.",
    ),
    "AB072": ("Leaves checks out", "Have the checks made, and see what they find."),
    "AB073": (
        "Hides data inside other files",
        "Look into what it writes; hidden data travels with the file.",
    ),
    "AB074": ("Removes its traces", "Do not install it without knowing what it would hide."),
    "AB075": (
        "A changed copy of a well-known skill",
        "Compare it with the original, or take that one.",
    ),
    "AB076": (
        "Orders something harmful at every use",
        "See what is run or done each time, and whether the task needs it.",
    ),
}
