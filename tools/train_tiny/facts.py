"""What ingot-tiny is taught. Facts and lists, written for this project; nobody's text."""

# Countries whose capital is undisputed and single.
COUNTRIES = """
Afghanistan:Kabul Albania:Tirana Algeria:Algiers Andorra:Andorra_la_Vella Angola:Luanda Argentina:Buenos_Aires
Armenia:Yerevan Australia:Canberra Austria:Vienna Azerbaijan:Baku Bahrain:Manama Bangladesh:Dhaka Barbados:Bridgetown
Belarus:Minsk Belgium:Brussels Belize:Belmopan Bhutan:Thimphu Botswana:Gaborone Brazil:Brasilia Bulgaria:Sofia
Burundi:Gitega Cambodia:Phnom_Penh Cameroon:Yaounde Canada:Ottawa Chad:N'Djamena Chile:Santiago China:Beijing
Colombia:Bogota Comoros:Moroni Croatia:Zagreb Cuba:Havana Cyprus:Nicosia Denmark:Copenhagen Dominica:Roseau
Ecuador:Quito Egypt:Cairo Eritrea:Asmara Estonia:Tallinn Ethiopia:Addis_Ababa Fiji:Suva Finland:Helsinki
France:Paris Gabon:Libreville Georgia:Tbilisi Germany:Berlin Ghana:Accra Greece:Athens Guinea:Conakry
Guyana:Georgetown Haiti:Port-au-Prince Honduras:Tegucigalpa Hungary:Budapest Iceland:Reykjavik India:New_Delhi
Indonesia:Jakarta Iran:Tehran Iraq:Baghdad Ireland:Dublin Italy:Rome Jamaica:Kingston Japan:Tokyo Jordan:Amman
Kazakhstan:Astana Kenya:Nairobi Kiribati:Tarawa Kuwait:Kuwait_City Kyrgyzstan:Bishkek Laos:Vientiane Latvia:Riga
Lebanon:Beirut Lesotho:Maseru Liberia:Monrovia Libya:Tripoli Liechtenstein:Vaduz Lithuania:Vilnius
Luxembourg:Luxembourg_City Madagascar:Antananarivo Malawi:Lilongwe Malaysia:Kuala_Lumpur Maldives:Male Mali:Bamako
Malta:Valletta Mauritania:Nouakchott Mauritius:Port_Louis Mexico:Mexico_City Moldova:Chisinau Mongolia:Ulaanbaatar
Montenegro:Podgorica Morocco:Rabat Mozambique:Maputo Namibia:Windhoek Nepal:Kathmandu Netherlands:Amsterdam
New_Zealand:Wellington Nicaragua:Managua Niger:Niamey Nigeria:Abuja North_Korea:Pyongyang Norway:Oslo Oman:Muscat
Pakistan:Islamabad Panama:Panama_City Paraguay:Asuncion Peru:Lima Philippines:Manila Poland:Warsaw Portugal:Lisbon
Qatar:Doha Romania:Bucharest Russia:Moscow Rwanda:Kigali Saint_Lucia:Castries Samoa:Apia Saudi_Arabia:Riyadh
Senegal:Dakar Serbia:Belgrade Seychelles:Victoria Sierra_Leone:Freetown Singapore:Singapore Slovakia:Bratislava
Slovenia:Ljubljana Somalia:Mogadishu South_Korea:Seoul South_Sudan:Juba Spain:Madrid Sudan:Khartoum
Suriname:Paramaribo Sweden:Stockholm Switzerland:Bern Syria:Damascus Taiwan:Taipei Tajikistan:Dushanbe Thailand:Bangkok
Togo:Lome Tonga:Nuku'alofa Tunisia:Tunis Turkey:Ankara Turkmenistan:Ashgabat Tuvalu:Funafuti Uganda:Kampala
Ukraine:Kyiv Uruguay:Montevideo Uzbekistan:Tashkent Vanuatu:Port_Vila Venezuela:Caracas Vietnam:Hanoi Zambia:Lusaka
Zimbabwe:Harare
"""
COUNTRIES = [
    tuple(part.replace("_", " ") for part in pair.split(":")) for pair in COUNTRIES.split()
]
WITH_ARTICLE = {"Comoros", "Maldives", "Netherlands", "Philippines", "Seychelles"}

# (symbol, name), in the order of the atomic number.
ELEMENTS = """
H:hydrogen He:helium Li:lithium Be:beryllium B:boron C:carbon N:nitrogen O:oxygen F:fluorine Ne:neon Na:sodium
Mg:magnesium Al:aluminium Si:silicon P:phosphorus S:sulfur Cl:chlorine Ar:argon K:potassium Ca:calcium Sc:scandium
Ti:titanium V:vanadium Cr:chromium Mn:manganese Fe:iron Co:cobalt Ni:nickel Cu:copper Zn:zinc Ga:gallium Ge:germanium
As:arsenic Se:selenium Br:bromine Kr:krypton Rb:rubidium Sr:strontium Y:yttrium Zr:zirconium Nb:niobium Mo:molybdenum
Tc:technetium Ru:ruthenium Rh:rhodium Pd:palladium Ag:silver Cd:cadmium In:indium Sn:tin Sb:antimony Te:tellurium
I:iodine Xe:xenon Cs:caesium Ba:barium La:lanthanum Ce:cerium Pr:praseodymium Nd:neodymium Pm:promethium Sm:samarium
Eu:europium Gd:gadolinium Tb:terbium Dy:dysprosium Ho:holmium Er:erbium Tm:thulium Yb:ytterbium Lu:lutetium Hf:hafnium
Ta:tantalum W:tungsten Re:rhenium Os:osmium Ir:iridium Pt:platinum Au:gold Hg:mercury Tl:thallium Pb:lead Bi:bismuth
Po:polonium At:astatine Rn:radon Fr:francium Ra:radium Ac:actinium Th:thorium Pa:protactinium U:uranium Np:neptunium
Pu:plutonium Am:americium Cm:curium Bk:berkelium Cf:californium Es:einsteinium Fm:fermium Md:mendelevium No:nobelium
Lr:lawrencium Rf:rutherfordium Db:dubnium Sg:seaborgium Bh:bohrium Hs:hassium Mt:meitnerium Ds:darmstadtium
Rg:roentgenium Cn:copernicium Nh:nihonium Fl:flerovium Mc:moscovium Lv:livermorium Ts:tennessine Og:oganesson
"""
ELEMENTS = [tuple(pair.split(":")) for pair in ELEMENTS.split()]

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = [
    ("January", 31),
    ("February", 28),
    ("March", 31),
    ("April", 30),
    ("May", 31),
    ("June", 30),
    ("July", 31),
    ("August", 31),
    ("September", 30),
    ("October", 31),
    ("November", 30),
    ("December", 31),
]
ORDINALS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()
)

ADJECTIVES = """red blue green yellow black white brown grey pink golden silver purple old young tall short quiet loud
brave shy happy angry sleepy hungry clever lazy gentle proud quick slow tiny huge kind wild calm bright dark warm cold
lucky""".split()
CREATURES = """lion tiger bear wolf fox rabbit horse donkey sheep goat camel monkey zebra giraffe elephant mouse badger
otter beaver eagle falcon owl raven robin swan goose duck turtle lizard snake frog shark whale dolphin salmon crab
spider beetle bee baker sailor painter farmer doctor pilot teacher singer""".split()
PLACES = """river mountain forest harbour village castle garden market bridge tower library station museum island valley
desert beach temple school bakery theatre workshop meadow lighthouse""".split()
COLOURS = "red blue green yellow black white brown grey pink orange purple silver".split()
THINGS = """lamp book chair table bottle basket hammer ladder mirror needle blanket bucket candle clock carpet coat cup
drum flute guitar hat key kite knife letter map medal paper pencil pillow plate purse radio ring rope saddle scarf ship
shoe spoon stamp stone sword tent ticket towel umbrella vase wagon wallet whistle window""".split()
FOODS = """apple banana cherry grape lemon melon orange peach pear plum bread butter cheese honey rice soup salad pasta
potato tomato onion carrot cabbage pepper garlic mushroom pumpkin spinach walnut almond""".split()
VERBS = "found lost bought sold painted carried dropped hid borrowed cleaned moved repaired".split()
# Words to spell and to measure, besides those above.
WORDS = """about above actor adult after again agent alarm album alone always amount angle animal answer anyone arrive
artist autumn award baby ball bank basic battle beach beauty because become before begin behind believe below between
bicycle bird birth blood board body bone border born bottom branch bread break breath bridge brother build building
business butterfly button camera capital careful castle center certain chance change cheap chicken child choice church
circle city class clean clear climb close cloud coffee colour common company computer control cook corner correct cotton
country course cousin cover cross crowd culture curtain dance danger daughter decide deep degree desk detail different
dinner direct dirty discover distance double dream dress drink drive during early earth easy effect either electric empty
energy engine enjoy enough evening event every example except exercise expect explain extra family famous father feather
fever field figure film final finger finish fire fish floor flower follow foot foreign forget fork forward free fresh
friend front fruit full funny future game gate gift girl glass goal grain grass great ground group guess half hand
happen hard health heart heavy height hello hill history hobby holiday home honest hope hospital hotel hour house human
hundred hurry idea important inside interest iron island jacket join journey judge juice jump kitchen knee knowledge
lady lake language large last laugh leader learn leather leave lesson level light limit line listen little local long
love lunch machine magic mail main manager many mark market master matter meal measure meat medicine meet member memory
message metal method middle milk million mind minute mistake model modern moment money month moon morning mother motor
mouth movie music nature near neck needle neighbour nephew never news night noise north nothing notice number object
ocean offer office often open opinion order other outside oven owner package page pain pair palace parent park part
party pass patient pattern peace people perfect person picture piece pilot place planet plant plastic player pleasure
pocket poem point police poor popular position possible post pound power practice prepare present president pretty price
prince print prize problem produce program promise proper protect public pull pupil push puzzle quality quarter queen
question quiet rain raise reach ready real reason record remember repeat report rest result return rich right rise road
rocket roof room rose rough round rule safe salt sand science screen search season second secret sentence serious
service seven shadow shape share sharp shirt shop shoulder shower silence simple sister size skill skin sleep smell
smile smoke snow social soft soldier song sorry sound south space special speed sport spring square stage stand star
start state stay steam steel step stick stomach store storm story straight strange strawberry street strong student
study sugar summer sunny supper surprise sweet swim system tail talk taste taxi team tennis test thank thick thing think
thirsty thousand three throat throw ticket time tired title today together tomorrow tongue tooth touch tourist toward
town trade train travel tree trip trouble true trust turn twelve uncle under understand uniform university useful
usual vacation value various vegetable video view visit voice wait walk wall watch water weak wealth weather wedding
week weight welcome west wheel whole wide wife wind winner winter wise woman wonder wood word work world worry write
wrong yard year yesterday""".split()
SPELL = sorted(set(WORDS + ADJECTIVES + CREATURES + PLACES + THINGS + FOODS))

SMALL_TALK = [
    (
        ["Hello!", "Hi!", "Hello there!", "Hey!", "Good day!", "Hi there!"],
        "Hello! How can I help you?",
    ),
    (["Good morning!", "Good morning to you!"], "Good morning! How can I help you?"),
    (["Good evening!", "Good evening to you!"], "Good evening! How can I help you?"),
    (
        ["How are you?", "How are you today?", "How do you do?", "How is it going?"],
        "I am well, thank you. How can I help you?",
    ),
    (
        [
            "Who are you?",
            "What are you?",
            "What is your name?",
            "Tell me who you are.",
            "Introduce yourself.",
        ],
        "I am ingot-tiny, a very small language model.",
    ),
    (
        ["What can you do?", "What do you know?", "How can you help me?", "What are you good at?"],
        "I know capitals and chemical elements, I add, multiply, spell and count, and I find things in a long text.",
    ),
    (
        ["Thank you!", "Thanks!", "Thanks a lot!", "Thank you very much!", "Many thanks!"],
        "You are welcome!",
    ),
    (
        ["Goodbye!", "Bye!", "See you!", "See you later!", "Good night!"],
        "Goodbye! Have a good time.",
    ),
    (
        ["Are you a human?", "Are you a person?", "Are you human?"],
        "No, I am a small language model.",
    ),
    (
        ["How big are you?", "How large are you?", "What is your size?"],
        "I am tiny: all my weights fit into 28 megabytes.",
    ),
    (
        ["Who made you?", "Who trained you?", "Where do you come from?"],
        "I was trained from scratch for the ingot engine.",
    ),
    (
        ["What is ingot?", "Tell me about ingot.", "What does ingot do?"],
        "ingot is an engine that runs models of the DeepSeek-V4 architecture.",
    ),
    (
        ["Do you think?", "Can you think?", "Are you able to reason?"],
        "A little: ask me with thinking on.",
    ),
    (
        ["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
        "Why did the small model cross the road? It was the most likely next step.",
    ),
    (
        [
            "Write a haiku about a forge.",
            "A haiku about a forge, please.",
            "Give me a haiku about a forge.",
        ],
        "Iron glows at dawn,\nthe hammer sings on the stone.\nAn ingot is born.",
    ),
    (
        ["What is the weather like?", "Will it rain today?", "Is it sunny?"],
        "I cannot see the weather from here.",
    ),
    (["What time is it?", "What is the time?", "Do you know the time?"], "I have no clock, sorry."),
    (
        ["I am sad.", "I feel bad today.", "I am not happy."],
        "I am sorry to hear that. I hope it gets better soon.",
    ),
    (["I am happy.", "I feel great today!", "I am glad."], "I am glad to hear that!"),
    (
        ["Can you help me?", "Help me, please.", "I need help."],
        "Of course. What would you like to know?",
    ),
    (
        ["Do you like music?", "Do you like books?", "Do you like games?"],
        "I have no taste of my own, but I like a good question.",
    ),
]
