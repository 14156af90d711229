"""Templates of the training prompts. All text in them was written for this project.

`tasks` draws prompts of nine kinds. In the kind "open", the target itself completes the user's turn from a few first words. The kinds
"summarize" and "rag" use passages that the target wrote in earlier rounds.
"""

from dataclasses import dataclass

KINDS = ["open", "chat", "code", "translate", "passage", "summarize", "rag", "maths", "qa"]
SHARES = dict(
    open=20, chat=16, code=6, translate=13, passage=9, maths=14, qa=13, summarize=6, rag=3
)  # per cent of the prompts
SAMPLES = dict(summarize=2, rag=3)  # number of answers to a long prompt; they share its prefill
LIMITS = dict(passage=220, translate=100, qa=110)  # answer tokens; other kinds have 136


@dataclass
class Task:
    kind: str
    prompt: str
    temperatures: list
    limit: int
    opening: bool = False


def words(text):
    """Splits a list of entries separated by bars."""
    return [w.strip() for w in text.replace("\n", " ").split("|") if w.strip()]


TOPICS = words("""
photosynthesis | black holes | the water cycle | volcanoes | earthquakes | plate tectonics | the moon landing | solar panels | wind turbines | electric cars |
climate change | recycling | coral reefs | rainforests | deserts | the Arctic | whales | dolphins | honey bees | butterflies | migration of birds | dinosaurs | fossils |
the human heart | the immune system | vaccines | antibiotics | sleep | dreams | memory | stress | anxiety | meditation | yoga | running | swimming | cycling | hiking |
weight training | healthy eating | vitamins | dental care | headaches | allergies | diabetes | blood pressure | first aid | mental health | time management |
procrastination | public speaking | job interviews | writing a resume | negotiating a salary | remote work | team building | leadership | project management |
customer service | marketing a small business | starting a bakery | opening a bookshop | personal budgets | saving for retirement | credit cards | mortgages |
inflation | interest rates | the stock market | taxes | insurance | trade agreements | supply and demand | unemployment | globalisation | immigration |
democracy | elections | human rights | the United Nations | the European Union | the Roman Empire | ancient Egypt | the Middle Ages | the Renaissance |
the French Revolution | the Industrial Revolution | the First World War | the Cold War | the Silk Road | the Vikings | the Aztecs | the Ottoman Empire |
the printing press | the telephone | the steam engine | the internet | search engines | social media | online privacy | passwords | computer viruses |
artificial intelligence | machine learning | neural networks | robots | self-driving cars | drones | virtual reality | video games | mobile phones | quantum computers |
databases | operating systems | open source software | encryption | cloud computing | 3D printing | satellites | space telescopes | Mars | the Sun | comets |
gravity | magnetism | electricity | light | sound | atoms | chemical reactions | acids and bases | the periodic table | nuclear power | evolution | genetics | DNA |
bacteria | viruses | mushrooms | trees | roses | tomatoes | gardening | composting | growing herbs | house plants | lawn care | pruning apple trees |
dogs | cats | parrots | goldfish | horses | training a puppy | adopting a pet | chess | card games | board games | puzzles | magic tricks | juggling |
guitar | piano | violin | jazz | opera | hip hop | folk music | classical music | learning to sing | painting with watercolours | drawing portraits | pottery | sculpture |
photography | film making | theatre | ballet | poetry | short stories | detective novels | science fiction | fairy tales | mythology | Shakespeare | biographies |
learning a language | spelling | grammar | essay writing | note taking | exam preparation | homework | teaching children to read | bullying | friendship | marriage |
parenting | grandparents | loneliness | gratitude | honesty | courage | patience | forgiveness | kindness | justice | free will | happiness | the meaning of life |
ethics | logic | Buddhism | Christianity | Islam | Hinduism | Judaism | Stoicism | existentialism | architecture | bridges | skyscrapers | railways | airports | ships |
bicycles | trains | public transport | traffic | city parks | libraries | museums | zoos | farms | fishing | forestry | mining | oil | water shortages | floods | hurricanes |
tornadoes | wildfires | earthquake safety | camping | packing a suitcase | jet lag | travelling alone | a weekend in Rome | a trip to Japan | a road trip in Canada |
a safari in Kenya | a beach holiday in Spain | skiing in the Alps | a visit to London | backpacking in Thailand | Paris on a budget | bread | pasta | pizza | soup | salad |
curry | sushi | tacos | pancakes | chocolate cake | apple pie | ice cream | coffee | tea | wine | cheese | eggs | rice | beans | potatoes | roast chicken | grilled fish |
a vegetarian dinner | breakfast | a birthday party | a wedding | a funeral speech | New Year | Thanksgiving | Christmas | Halloween | Easter | Diwali | Ramadan |
football | basketball | tennis | cricket | baseball | golf | rugby | boxing | the Olympic Games | marathons | surfing | sailing | rock climbing | martial arts |
cleaning a kitchen | removing stains | fixing a leaking tap | painting a room | choosing a sofa | moving house | renting a flat | noisy neighbours | saving energy |
buying a used car | changing a tyre | winter driving | learning to drive | sewing | knitting | woodworking | candles | soap | jewellery | fashion | shoes | hair care | skin care
""")
PEOPLE = words("""Albert Einstein | Marie Curie | Isaac Newton | Charles Darwin | Leonardo da Vinci | Galileo Galilei | Nikola Tesla | Thomas Edison | Ada Lovelace | Alan Turing |
Napoleon | Julius Caesar | Cleopatra | Alexander the Great | Abraham Lincoln | George Washington | Winston Churchill | Nelson Mandela | Mahatma Gandhi | Martin Luther King |
Queen Victoria | Joan of Arc | Catherine the Great | Genghis Khan | Marco Polo | Christopher Columbus | Neil Armstrong | Amelia Earhart | Mozart | Beethoven | Bach | Vivaldi |
Chopin | Elvis Presley | Bob Dylan | Madonna | Michael Jackson | David Bowie | Aretha Franklin | Johnny Cash | William Shakespeare | Jane Austen | Charles Dickens | Mark Twain |
Leo Tolstoy | Agatha Christie | George Orwell | Virginia Woolf | Homer | Plato | Socrates | Aristotle | Confucius | Immanuel Kant | Sigmund Freud | Karl Marx | Adam Smith |
Pablo Picasso | Vincent van Gogh | Claude Monet | Frida Kahlo | Michelangelo | Rembrandt | Walt Disney | Charlie Chaplin | Audrey Hepburn | Marilyn Monroe | Alfred Hitchcock |
Steven Spielberg | Steve Jobs | Henry Ford | Coco Chanel | Florence Nightingale | Louis Pasteur | Rosa Parks | Muhammad Ali | Serena Williams | Pele | Usain Bolt | Bruce Lee""")
PLACES = words("""France | Germany | Italy | Spain | Portugal | Greece | Norway | Sweden | Poland | Russia | Turkey | Egypt | Kenya | Nigeria | South Africa | Morocco | India | China | Japan |
South Korea | Thailand | Vietnam | Indonesia | Australia | New Zealand | Canada | Mexico | Brazil | Argentina | Chile | Peru | Colombia | Cuba | Iceland | Ireland | Scotland | Wales |
Switzerland | Austria | Hungary | Romania | Ukraine | Finland | Denmark | the Netherlands | Belgium | Texas | California | Florida | Alaska | Hawaii | New York City | Chicago |
Boston | Los Angeles | San Francisco | Seattle | Toronto | London | Paris | Berlin | Madrid | Rome | Venice | Vienna | Prague | Moscow | Istanbul | Cairo | Mumbai | Beijing |
Tokyo | Singapore | Sydney | Rio de Janeiro | Buenos Aires""")
WORKS = words("""Pride and Prejudice | Moby Dick | Romeo and Juliet | Hamlet | Frankenstein | Dracula | The Odyssey | Don Quixote | War and Peace | Alice in Wonderland | Treasure Island |
Peter Pan | The Jungle Book | Oliver Twist | Jane Eyre | The Great Gatsby | Brave New World | The Lord of the Rings | Harry Potter | Star Wars | The Godfather | Titanic | Jaws |
Casablanca | The Wizard of Oz | The Lion King | Toy Story | Jurassic Park | The Matrix | Back to the Future | Gone with the Wind | The Simpsons | Friends | Star Trek |
Sherlock Holmes | the Mona Lisa | the Sistine Chapel | Swan Lake | The Magic Flute | Bohemian Rhapsody | Let It Be | Imagine | Yesterday | Hotel California | Thriller""")
THINGS = words("""the light bulb | the bicycle | the compass | paper | glass | the camera | the radio | television | the microscope | penicillin | the zipper | the piano | the escalator |
the parachute | the microwave oven | the pencil | the bank note | the calendar | the thermometer | the helicopter | the submarine | the lawn mower | the sewing machine |
the washing machine | the elevator | the credit card | the barcode | basketball | volleyball | the World Cup | the Nobel Prize | the Eiffel Tower | the Statue of Liberty |
the Great Wall of China | the Suez Canal | the Panama Canal | the Brooklyn Bridge | the Taj Mahal | Big Ben | the Colosseum | Machu Picchu | Stonehenge | Mount Everest |
the Amazon River | the Nile | the Grand Canyon | Niagara Falls | Lake Baikal | the Sahara | the Dead Sea | the Great Barrier Reef""")
NAMES = words("""Anna | Ben | Carla | David | Elena | Frank | Grace | Henry | Ines | Jack | Kate | Leo | Maria | Nina | Omar | Paula | Quentin | Rosa | Sam | Tina | Umar | Vera | Will |
Yara | Zoe | Mr. Brown | Mrs. Lopez | Aisha | Tom | Lucy | Peter | Sofia | Ravi | Mei | Carlos | Emma""")
GOODS = words("""apples | oranges | marbles | stickers | books | pencils | cookies | muffins | balloons | stamps | shells | toy cars | flowers | eggs | tickets | bottles | shirts | chairs |
bags of rice | candles | cards | coins | boxes | cupcakes | fish | hats | jars of honey | kites | lemons | notebooks | postcards | bricks | pizzas | roses | sandwiches""")
ROLES = words("""a doctor | a pirate captain | a medieval knight | a travel guide | a chef | a football coach | a history teacher | a detective | an astronaut | a farmer | a lawyer |
a poet | a robot from the year 3000 | a wise grandmother | a cat | a librarian | a news reporter | a mountain climber | a queen | a physicist | a shop assistant | a musician |
a gardener | a sailor | a judge | a personal trainer | an ancient Greek philosopher | a dragon | a software engineer | a salesperson""")
FORMS = words("""a short poem | a haiku | a limerick | a short story | a fairy tale | a dialogue | a letter to a friend | a formal email | a product description | a speech |
a newspaper article | a blog post | a diary entry | a song | a list of ten tips | a short essay | a joke | a riddle | a film review | an advertisement | a social media post |
a recipe | a step-by-step guide | a lesson plan | a quiz with five questions | a table of pros and cons | a brief report | an outline""")

OPENINGS = words("""How | How can I | How do I | How does | How many | How would you | What | What is | What are | What are the | What is the difference between | What would happen if | Why |
Why do | Why is | When | When was | Where | Who | Who was | Which | Can you | Can you explain | Can you help me | Could you | Could you write | Please | Please write | Please explain |
Please help me | I | I am | I'm | I'm trying to | I need | I need help with | I want to | I have | I have a | I would like | My | My friend | My boss | Is | Is it | Is there | Are | Do |
Does | Should I | Give me | Give me a list of | Give an example of | Write | Write a | Write a story about | Write a poem about | Write an email | Write a function | Write a program |
Create | Create a | Design | Describe | Describe the | Explain | Explain how | Explain the | Explain why | List | List the | Name | Tell me | Tell me about | Compare | Compare the |
Discuss | Analyze | Summarize | Rewrite | Translate | Identify | Classify | Find | Find the | Calculate | Solve | If | If a | In | In the | Imagine | Imagine you are | Pretend | Suppose |
Act as | You are | Let's | Given | Given the following | Consider | Read | Based on | Evaluate | Generate | Make | Suggest | Develop | Provide | The | A | Here is | Thank you | Hello | Hi | Hey
|  |  | """) + ["", "", "", ""]

CHAT = [
    "What is {topic}?",
    "Tell me about {topic}.",
    "Explain {topic} to a child.",
    "Explain {topic} in simple terms.",
    "What are the benefits of {topic}?",
    "What are the main problems with {topic}?",
    "Give me five facts about {topic}.",
    "Give me advice about {topic}.",
    "Write {form} about {topic}.",
    "Write {form} about {topic}.",
    "Write {form} about {topic} and {topic2}.",
    "Compare {topic} and {topic2}.",
    "How is {topic} related to {topic2}?",
    "Discuss the advantages and disadvantages of {topic}.",
    "Describe the history of {topic}.",
    "I want to learn about {topic}. Where should I start?",
    "What should a beginner know about {topic}?",
    "What are common misconceptions about {topic}?",
    "How has {topic} changed over the last hundred years?",
    "Act as {role} and talk about {topic}.",
    "Pretend that you are {role}. What do you think of {topic}?",
    "Imagine you are {role}. Describe your day.",
    "You are {role}. Please answer my question: why does {topic} matter?",
    "Write an opening paragraph for a story about {role} who loves {topic}.",
    "I have a question about {topic}. Can you help me?",
    "Why do people care about {topic}?",
    "Create a three-day plan for someone interested in {topic}.",
    "Suggest ten titles for a book about {topic}.",
    "Write {form} for {role}.",
    "How would {role} explain {topic} to {role2}?",
    "What are the economic and social effects of {topic}? Give examples.",
    "Describe {topic} with three adjectives and explain each choice.",
    "Is it true that {topic} can change a person's life? Explain your reasoning.",
    "Give a counterargument to the claim that {topic} is overrated.",
    'Extract the names and places from this text: "{name} met {name2} in {place} to talk about {topic}."',
    'Correct the grammar of this sentence: "{name} dont knows nothing about {topic} because he never learn it."',
    "Write an email from {name} to {name2} about {topic}. Keep it short and polite.",
    "What three questions would you ask {role} about {topic}?",
    'Rewrite this sentence in a formal style: "Hey {name}, {topic} is really cool, you should check it out!"',
    "If {name} is taller than {name2} and {name2} is taller than {name3}, who is the shortest? Explain.",
    "A room has a lamp, a candle and a fireplace, and you have one match. What do you light first and why?",
    "{name} has three sisters, and each sister has one brother. How many brothers are there? Think step by step.",
    "Which word does not belong: {topic}, {topic2}, banana? Why?",
    "Outline the key ideas of {person}.",
    "Write {form} about {person}.",
    "Write {form} about a trip to {place}.",
    "Plan a weekend in {place}.",
    "What should I know before I move to {place}?",
    "Describe the culture and the food of {place}.",
    "Compare {place} and {place2}.",
    "What would {person} say about {topic}?",
    "Recommend five books for someone who liked {work}.",
    "What is the main theme of {work}?",
    "Summarise the plot of {work}.",
]
OBJECTS = words("""a list of numbers | a string | two sorted lists | a dictionary | a matrix | a linked list | a binary tree | a graph | a CSV file | a text file | a JSON document |
a list of words | a date | an integer | a sentence | a stack | a queue | a URL | a list of students with grades | a shopping cart""")
ACTIONS = words("""sort | reverse | print | search | copy | merge | count the elements of | find the largest value in | find duplicates in | remove duplicates from | compute the average of |
validate | parse | compress | rotate | flatten | split | compare two versions of | encrypt | sum the values of | filter the even entries of | iterate over | convert to upper case""")
LANGUAGES = words(
    "Python | Python | Python | Python | JavaScript | Java | C | C++ | C# | Go | Rust | SQL | Bash | HTML and CSS | TypeScript | R"
)
PROBLEMS = words("""the Fibonacci sequence | prime numbers up to n | the factorial of a number | the greatest common divisor | palindromes | anagrams | binary search | bubble sort | quicksort |
merge sort | depth-first search | breadth-first search | Dijkstra's algorithm | the Towers of Hanoi | matrix multiplication | the n queens problem | a tic-tac-toe game |
a guessing game | a calculator | a to-do list | a bank account class | a stopwatch | a temperature converter | a password generator | word frequencies | a simple web server |
a REST endpoint | a login form | a responsive navigation bar | the longest common subsequence | edit distance | a least-recently-used cache | a rate limiter | roman numerals |
leap years | vowels in a string | a Caesar cipher | the sum of digits | the median of two lists | parentheses that match | a priority queue | a hash table | reading a file line by line""")
CODE = [
    "Write a {language} function to {action} {object}.",
    "Write a {language} program for {problem}.",
    "Implement {problem} in {language}.",
    "How do I {action} {object} in {language}?",
    "Explain how {problem} works and give an example in {language}.",
    "Write unit tests for a function that can {action} {object}.",
    "Write a {language} script that reads {object} and prints the result. Then {action} {object2}.",
    "What is the time complexity of {problem}?",
    "Develop a {language} program that uses {problem} to {action} {object}.",
    "Show me a short example of {problem} in {language} with comments.",
    "Why is my {language} code slow when I {action} {object}?",
    'Complete this function:\n\ndef solve(data):\n    """{problem}"""\n',
    "Find the bug:\n\ndef total(items):\n    result = 0\n    for i in range(1, len(items)):\n        result += items[i]\n    return result\n",
    "What is the difference between a list and a tuple in Python? When would you use {object}?",
    "Write an SQL query to {action} a table of customers in {place}.",
]
QA = [
    "Who invented {thing}?",
    "When was {thing} invented?",
    "When was {thing} first made?",
    "Where is {thing}?",
    "Who made {thing}?",
    "Why is {thing} famous?",
    "How old is {thing}?",
    "What is the name of the person who discovered {thing}?",
    "Where does the word for {thing} come from?",
    "How was {thing} built?",
    "Who was {person}?",
    "When was {person} born?",
    "Where did {person} live?",
    "Where was {person} born?",
    "How did {person} die?",
    "What is {person} best known for?",
    "When did {person} become famous?",
    "Who was married to {person}?",
    "What did {person} do for a living?",
    "What is the capital of {place}?",
    "What is the population of {place}?",
    "Where is {place} located?",
    "What language do they speak in {place}?",
    "Who is the leader of {place}?",
    "What is the largest river in {place}?",
    "When did {place} become independent?",
    "What is the currency of {place}?",
    "What time zone is {place} in?",
    "What is the highest mountain in {place}?",
    "Who wrote {work}?",
    "When did {work} come out?",
    "Who sings the song in {work}?",
    "Who played the main role in {work}?",
    "How does {work} end?",
    "Where does {work} take place?",
    "How many people worked on {work}?",
    "What year was {work} released?",
    "Who is the villain in {work}?",
    "How many parts does {work} have?",
    "Who won the first championship in {topic}?",
    "What is the scientific name for {topic}?",
    "When did {topic} begin?",
    "Where did {topic} originate?",
    "Who is the most famous person in {topic}?",
    "What is another word for {topic}?",
    'What is the meaning of the phrase "{topic}"?',
    "How many kinds of {topic} are there?",
    "Which country is best known for {topic}?",
    "who was the first person to write about {topic}",
    "when does the season of {topic} start",
    "where was {work} filmed",
    "what is the most popular form of {topic} in {place}",
    "who is the president of the society for {topic}",
    "how many people in {place} like {topic}",
    "when was the last time {place} hosted the world cup",
    "who sang {work} first",
    "what channel shows {work}",
    "where do {topic} come from",
    "who holds the record for {topic}",
    "what is the role of {topic} in the history of {place}",
]
MATHS = [
    "{name} has {a} {goods}. {name2} gives {name} {b} more. How many {goods} does {name} have now?",
    "{name} buys {a} {goods} for ${b} each. How much does {name} pay in total?",
    "A shop sells {goods} at ${b} each. On Monday it sold {a} of them and on Tuesday twice as many. How much money did it take in both days?",
    "{name} reads {a} pages a day for {c} days and then {b} pages a day for the rest of the week. How many pages does {name} read in the week?",
    "A train travels at {a}0 miles per hour for {c} hours. How far does it go? How long would it take at half the speed?",
    "{name} earns ${b} an hour and works {a} hours a week. How much does {name} earn in {c} weeks?",
    "There are {a} rows of {b} {goods}. {c} of them are broken. How many {goods} are left?",
    "{name} is {a} years old. {name2} is {c} times as old as {name}. How old will {name2} be in {b} years?",
    "{name} has {a}0 {goods} and gives half of them to {name2} and a quarter of the rest to {name3}. How many are left?",
    "A recipe needs {c} cups of flour for {b} cookies. How many cups does {name} need for {a} times as many cookies?",
    "The sum of two numbers is {a}{b} and their difference is {c}. What are the numbers?",
    "What is the area of a rectangle with sides {a} and {b}? What is its perimeter?",
    "Solve for x: {c}x + {b} = {a}{b}.",
    "What is {a}% of {b}00?",
    "If f(x) = {c}x^2 - {a}x + {b}, find f({c}).",
    "Find all x with x^2 - {a}x + {b} = 0.",
    "A tank holds {a}0 litres. A pump fills {c} litres a minute, but {b} litres leak every hour. How long does it take to fill the tank?",
    "A class has {a} students. One third of them play chess and {c} of them play tennis. How many play neither, if nobody plays both?",
    "{name} pays ${a} for a ticket, ${b} for lunch and ${c} for a drink. If {name} had $100, how much is left?",
    "There were {a}0 {goods} in a box. {name} took {b} every day for {c} days. How many {goods} are left in the box?",
    "{name} and {name2} share {a}0 {goods} in the ratio {c}:{b}. How many does each of them get?",
    "The price of a coat was ${a}0. It was reduced by {b}%, and then by another {c}0%. What is the new price?",
    "A farmer has {a} cows and {b} chickens. How many legs do they have together?",
    "What is the probability of drawing a red ball from a bag with {a} red, {b} blue and {c} green balls?",
    "{name} saves ${b} in the first month and ${c} more in every following month. How much has {name} saved after {c} months?",
    "If {c} workers build a wall in {a} days, how many days do {b} workers need?",
    "Compute {a} * {b} + {c} * {a}.",
    "What is the remainder when {a}{b}{c} is divided by {c}?",
    "A car uses {c} litres of fuel per 100 km. Fuel costs ${b} per litre. What does a trip of {a}0 km cost?",
    "{name} has {a} coins worth {c} cents and {b} coins worth 25 cents. What is the total value in dollars?",
    "A garden is {a} metres long and {b} metres wide. A path {c} metres wide runs around it. What is the area of the path?",
]

# German, French and Spanish sentences are combined from parts: a few dozen parts give thousands of sentences.
GERMAN = dict(
    time=words("""Am Montag | Gestern Abend | Im vergangenen Jahr | Seit 2015 | Nach dem Spiel | In den letzten Wochen | Vor allem im Winter | Zu Beginn der Saison | Am Ende des Tages |
    Während der Sitzung | Bereits im Mai | Trotz des Regens | Laut Angaben der Polizei | Wie jedes Jahr | Für viele Familien überraschend | Nach Meinung der Experten"""),
    verb=words("""hat | will | wird | kann | muss | soll | möchte | konnte | wollte | musste"""),
    subject=words("""der Bürgermeister | die Regierung | eine junge Frau | der Trainer | die Mannschaft | das Unternehmen | die Lehrerin | der Verein | die Polizei | ein älterer Herr |
    die Stadt | der Vorsitzende | die Universität | das Gericht | die Feuerwehr | der Minister | die Künstlerin | mein Nachbar | die Gemeinde | der Präsident"""),
    object=words("""das neue Programm | den Vertrag | die Ergebnisse der Wahl | eine Ausstellung im Rathaus | das alte Gebäude | die Kosten für den Umbau | einen Preis für den besten Film |
    die Straße am Bahnhof | mehr als 200 Besucher | den Unfall auf der Autobahn | die Pläne für das nächste Jahr | ein Haus am See | das Geld der Bürger | den letzten Platz in der Tabelle |
    die Kinder aus der Schule | eine Antwort auf diese Frage | das Konzert in der Kirche | den Weg nach Hause | die Zukunft der Region | einen Brief an die Eltern"""),
    past=words(
        "vorgestellt | gesehen | verloren | gefunden | besprochen | kritisiert | gelobt | verschoben | eröffnet | bezahlt | verkauft | untersucht"
    ),
    plain=words(
        "vorstellen | sehen | verlieren | finden | besprechen | kritisieren | loben | verschieben | eröffnen | bezahlen | verkaufen | untersuchen"
    ),
    tail=words("""| , obwohl niemand damit gerechnet hat | , weil das Wetter schlecht war | , sagte der Sprecher | und danach noch lange gefeiert | , so der Bericht | , um Zeit zu gewinnen |
    , wenn alles nach Plan läuft | , aber nicht alle waren zufrieden | , das in ganz Europa bekannt ist | , wie die Zeitung schreibt | , bevor die Sommerferien beginnen""")
    + ["", "", ""],
)
FRENCH = dict(
    subject=words(
        "Le maire | Ma sœur | Le gouvernement | L'équipe | Une jeune femme | Le professeur | La ville | Mon voisin | Le directeur | Les enfants de l'école"
    ),
    verb=words(
        "a présenté | a perdu | a trouvé | a vendu | n'a pas vu | a visité | cherche | prépare | va ouvrir | veut changer"
    ),
    object=words(
        "le nouveau projet | la maison près de la mer | un livre ancien | les résultats de l'élection | le musée | une voiture rouge | le repas du soir | la réponse | le train de midi"
    ),
    tail=words(
        "hier soir | pendant l'été | avec ses amis | sans rien dire | pour la première fois | malgré la pluie | à Paris | depuis deux ans"
    ),
)
SPANISH = dict(
    subject=words(
        "El alcalde | Mi hermana | El gobierno | El equipo | Una mujer joven | La profesora | La ciudad | Mi vecino | El director | Los niños"
    ),
    verb=words(
        "ha presentado | perdió | encontró | vendió | no ha visto | visitó | busca | prepara | quiere cambiar | va a abrir"
    ),
    object=words(
        "el nuevo proyecto | la casa cerca del mar | un libro antiguo | los resultados de las elecciones | el museo | un coche rojo | la cena | la respuesta | el tren de las doce"
    ),
    tail=words(
        "anoche | durante el verano | con sus amigos | sin decir nada | por primera vez | a pesar de la lluvia | en Madrid | desde hace dos años"
    ),
)
TRANSLATE = ["Translate {from_} to English: {text}"] * 6 + [
    "Translate the following {from_} sentence into English: {text}",
    "What does this mean in English? {text}",
    "{text}\n\nTranslate this into English.",
    'Translate from {from_}: "{text}"',
    "Please translate into English:\n{text}",
]

PASSAGES = [
    "Write an encyclopedia article about {topic}.",
    "Write an encyclopedia article about {person}.",
    "Write an encyclopedia article about {place}.",
    "Write an encyclopedia article about {work}.",
    "Write an encyclopedia article about {thing}.",
    "Write a news report about {topic} in {place}.",
    "Write a news report about {name}, who works as {role} in {place}.",
    "Write a sports report about a match between {place} and {place2}.",
    "Write a detailed paragraph about the history of {place}.",
    "Write a detailed paragraph about the life of {person}.",
    "Write a news article about a court case in {place}.",
    "Write a short newspaper story about an accident in {place}. Include names, dates and numbers.",
    "Write a report on a football player who moves from {place} to {place2}.",
    "Write a news article on a new study about {topic}. Quote two experts.",
    "Describe {thing} in one long paragraph with facts and dates.",
    "Write a newspaper article about an election in {place}.",
    "Write an article about a film like {work}: cast, production, release and reception.",
]
SUMMARIZE = ["Summarize: {text}"] * 5 + [
    "Summarize the following text:\n\n{text}",
    "{text}\n\nSummarize this in two sentences.",
    "{text}\n\nTL;DR",
    "Give me a short summary of this article.\n\n{text}",
    "What are the main points of this text?\n\n{text}",
]
RAG = [
    "{text}\n\nQuestion: {question}\nAnswer:",
    "{text}\n\n{question}",
    "Answer the question using the text.\n\nText: {text}\n\nQuestion: {question}",
    "Context: {text}\n\nBased on the context, {question}",
    "Use the following passages to answer.\n\n{text}\n\n{question}",
]
QUESTIONS = [
    "what is this text about?",
    "who is mentioned in the text and why?",
    "what happened first?",
    "when did this happen?",
    "where does this take place?",
    "what is the most important fact?",
    "which numbers are given and what do they mean?",
    "what do we learn about {word}?",
    "why is {word} important?",
    "who or what is {word}?",
    "when is {word} mentioned?",
    "how is {word} described?",
    "what does the text say about {word}?",
    "what is the connection between {word} and {word2}?",
]


def german(rng):
    g = {k: rng.choice(v) for k, v in GERMAN.items() if k not in ("past", "plain")}
    ending = rng.choice(GERMAN["past"] if g["verb"] == "hat" else GERMAN["plain"])
    text = f"{g['time']} {g['verb']} {g['subject']} {g['object']} {ending}{' ' * (g['tail'][:1] != ',')}{g['tail']}".rstrip()
    return text + rng.choice([".", ".", ".", "!"])


def romance(rng, parts):
    return " ".join(rng.choice(parts[k]) for k in ("subject", "verb", "object", "tail")) + "."


def fill(rng, template):
    """Fills every slot of a template with a random entry of its list."""
    two = lambda entries: rng.sample(entries, 3)
    topic, name, place, role, thing = two(TOPICS), two(NAMES), two(PLACES), two(ROLES), two(OBJECTS)
    return template.format(
        topic=topic[0],
        topic2=topic[1],
        name=name[0],
        name2=name[1],
        name3=name[2],
        place=place[0],
        place2=place[1],
        role=role[0],
        role2=role[1],
        object=thing[0],
        object2=thing[1],
        form=rng.choice(FORMS),
        person=rng.choice(PEOPLE),
        work=rng.choice(WORKS),
        thing=rng.choice(THINGS),
        goods=rng.choice(GOODS),
        language=rng.choice(LANGUAGES),
        action=rng.choice(ACTIONS),
        problem=rng.choice(PROBLEMS),
        a=rng.randint(3, 30),
        b=rng.randint(2, 24),
        c=rng.randint(2, 7),
    )


def question(rng, passage):
    """A question about a passage; its capitalised or long words serve as key words."""
    keys = [w.strip(".,:;()\"'*") for w in passage.split()]
    keys = [w for w in keys if len(w) > 6 or (len(w) > 3 and w[0].isupper())] or ["this"]
    return rng.choice(QUESTIONS).format(word=rng.choice(keys), word2=rng.choice(keys))


def prompt(rng, kind, passages):
    if kind == "open":
        return rng.choice(OPENINGS)
    if kind == "translate":
        language = rng.choice(["German"] * 8 + ["French", "Spanish"])
        one = lambda: german(rng) if language == "German" else romance(rng, FRENCH if language == "French" else SPANISH)
        text = " ".join(one() for _ in range(rng.choice([1, 1, 1, 2])))
        return rng.choice(TRANSLATE).format(from_=language, text=text)
    if kind == "summarize":
        text = "\n\n".join(rng.sample(passages, rng.choice([1, 1, 2])))
        return rng.choice(SUMMARIZE).format(text=text)
    if kind == "rag":
        chosen = rng.sample(passages, rng.choice([2, 3]))
        return rng.choice(RAG).format(text="\n".join(chosen), question=question(rng, rng.choice(chosen)))
    return fill(rng, rng.choice(dict(chat=CHAT, code=CODE, qa=QA, maths=MATHS, passage=PASSAGES)[kind]))


def tasks(rng, size, passages):
    """Draws `size` prompts. Kinds that use passages are left out while there are fewer than 40 passages."""
    kinds = [k for k in SHARES if len(passages) >= 40 or k not in SAMPLES]
    for _ in range(size):
        kind = rng.choices(kinds, [SHARES[k] for k in kinds])[0]
        temperatures = (
            [rng.choice([0.0, 0.0, 0.0, 0.7, 1.0, 1.0])]
            if SAMPLES.get(kind, 1) == 1
            else [0.0, 1.0, rng.choice([0.7, 1.0])][: SAMPLES[kind]]
        )
        yield Task(kind, prompt(rng, kind, passages), temperatures, LIMITS.get(kind, 136), kind == "open")
